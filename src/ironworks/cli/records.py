"""The event log as the reading verbs see it: the newest run, one issue, or a clear word that none is."""

from ironworks.app.place import Place
from ironworks.app.progress import IssueProgress, RunProgress, progress
from ironworks.cli.output import closest
from ironworks.core.errors import MissingError
from ironworks.engine.advice import next_command, run_command
from ironworks.store.reader import Reader, Row


def latest_run(reader: Reader, place: Place) -> str:
    """The newest run's id; MissingError before the first."""
    runs = [run for run in reader.runs() if run]
    if not runs:
        raise MissingError(f"no run has been started for {place.root}", hint="ironworks run --backlog FILE")
    return runs[-1]


def run_named(reader: Reader, place: Place, run: str | None) -> str:
    """`run` if there is such a run, the newest one for None."""
    if run is None:
        return latest_run(reader, place)
    if run not in reader.runs():
        raise MissingError(f"there is no run {run!r}", hint=f"the newest is {latest_run(reader, place)}")
    return run


def fold(reader: Reader, run: str) -> RunProgress:
    return progress(reader.rows(run=run))


def issue_rows(reader: Reader, place: Place, issue: str) -> list[Row]:
    """Every event of an issue, all runs; MissingError, with the closest id, if there is none."""
    rows = reader.rows(issue=issue)
    if issue and rows:
        return rows
    known = fold(reader, latest_run(reader, place)).issues
    raise MissingError(f"there is no issue {issue!r}", hint=closest(issue, known) or "ironworks status")


def issue_of(rows: list[Row]) -> IssueProgress:
    """One issue, folded over all its runs."""
    return next(iter(progress(rows).issues.values()))


def next_step(run: RunProgress) -> str:
    """What a person should do first, given that no factory runs; empty before the first run."""
    if run.finished_s is None:
        return run_command(run.backlog) if run.run else ""
    return next_command([(issue.id, issue.state, issue.reason) for issue in run.issues.values()], run.backlog)
