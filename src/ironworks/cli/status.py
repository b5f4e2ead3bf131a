"""`ironworks status`: where every issue stands, from the event log and the pull requests' records."""

import time
from pathlib import Path

import click

from ironworks.app.place import Place, factory_pid
from ironworks.app.progress import IssueProgress, RunProgress
from ironworks.app.pulls import overlay
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import columns, dollars, duration, print_json, say, short
from ironworks.cli.records import fold, next_step, run_named
from ironworks.core.errors import MissingError
from ironworks.engine.advice import run_command
from ironworks.git.command import Git
from ironworks.store.reader import Reader, Waiting

TITLE_WIDTH = 60


@click.command("status")
@click.option("--run", metavar="RUN", help="A run other than the newest.")
@place_options
@json_option
def command(run: str | None, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Say where every issue of the newest run stands."""
    place = place_of(repository, state)
    reader = Reader(place.database)
    pid = factory_pid(place.state)
    waiting = reader.waiting()
    try:
        found = fold(reader, run_named(reader, place, run))
    except MissingError:
        if run is not None:
            raise
        found = RunProgress()
    overlay(found, Git(place.git_dir))
    step = "" if pid else run_command(found.backlog) if waiting else next_step(found)
    step = "" if step == "ironworks status" else step
    if as_json:
        print_json(as_data(place, found, pid, waiting, suggestion(step, place)))
    else:
        _print(place, found, pid, waiting, suggestion(step, place))


def as_data(
    place: Place, run: RunProgress, pid: int | None, waiting: list[Waiting], step: str
) -> dict[str, object]:
    return {
        "run": run.run,
        "running": pid is not None,
        "pid": pid,
        "paused": run.paused,
        "repository": str(place.root),
        "state_dir": str(place.state),
        "backlog": run.backlog,
        "base": run.base,
        "started_s": run.started_s,
        "finished_s": run.finished_s,
        "exit_code": run.exit_code,
        "cost_usd": round(run.cost_usd, 6),
        "issues": [issue.as_dict() for issue in run.issues.values()],
        "waiting": [message._asdict() for message in waiting],
        "next": step,
    }


def _print(place: Place, run: RunProgress, pid: int | None, waiting: list[Waiting], step: str) -> None:
    if not run.run:
        say(f"No run has been started for {place.root}.")
        return
    say(f"run {run.run}: {_life(run, pid)}, {dollars(run.cost_usd)}")
    if run.issues:
        now = time.time()
        header = ("ISSUE", "STATE", "FOR", "COST", "ROUNDS", "TITLE")
        say(columns([header, *(_row(issue, now) for issue in run.issues.values())]))
    for issue in run.issues.values():
        for line in _advice(issue, place):
            say(line)
    if waiting:
        words = (f"{message.verb} {message.issue}".strip() for message in waiting)
        say(f"waiting for a factory: {', '.join(words)}")
    if step:
        say(f"next: {step}")


def _life(run: RunProgress, pid: int | None) -> str:
    if pid:
        return f"{'paused' if run.paused else 'running'} (process {pid})"
    if run.finished_s is None:
        return "interrupted; the next `ironworks run` goes on with it"
    return f"{'stopped' if run.stopped else 'finished'}, exit code {run.exit_code}"


def _row(issue: IssueProgress, now: float) -> tuple[str, ...]:
    state = f"{issue.state} ({short(issue.reason, 24)})" if issue.reason else issue.state
    return (
        issue.id,
        f"{state} [paused]" if issue.paused else state,
        duration(now - issue.since_s),
        dollars(issue.cost_usd),
        str(issue.rounds),
        short(issue.title, TITLE_WIDTH),
    )


def _advice(issue: IssueProgress, place: Place) -> list[str]:
    """Why an issue that needs a person rests, and what to do."""
    if issue.state not in {"asked", "parked", "evicted", "failed"}:
        return []
    data = issue.as_dict()
    lines = [f"{issue.id}: {data['meaning']}. {short(issue.detail, 200)}".rstrip()]
    lines += [f"    ? {short(question, 200)}" for question in issue.questions if issue.state == "asked"]
    return [*lines, f"    {suggestion(data['way_out'], place)}"]
