"""`ironworks report`: what a run came to."""

from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from ironworks.app.place import Place
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import print_json, say
from ironworks.cli.records import run_named
from ironworks.cli.summary import as_markdown, as_text
from ironworks.core.errors import UsageError
from ironworks.core.events import Recorded
from ironworks.core.report import RunReport
from ironworks.store.reader import Reader


@click.command("report")
@click.argument("run", required=False)
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@place_options
@json_option
def command(
    run: str | None, markdown: bool, repository: Path | None, state: Path | None, as_json: bool
) -> None:
    """Tell what the newest run, or RUN, came to: outcomes, catches, conflicts, costs, times, the next step.

    A run that has ended has a frozen report; of one that goes on, this is the report so far.
    """
    if markdown and as_json:
        raise UsageError("--markdown and --json exclude each other")
    place = place_of(repository, state)
    reader = Reader(place.database)
    report = report_of(place, reader, run_named(reader, place, run))
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        say(as_markdown(report) if markdown else as_text(report))


def report_of(place: Place, reader: Reader, run: str) -> RunReport:
    """The frozen report of `run`, or one built from its events so far."""
    try:
        return RunReport.model_validate_json((place.logs / run / "report.json").read_bytes())
    except (OSError, ValidationError):
        pass  # It has not ended, or was written by another version: the events tell the same.
    from ironworks.engine.report import Merged, build_report

    report = build_report(Merged([recorded(reader, run)]), run, state_dir=str(place.state))
    return report.model_copy(update={"next": suggestion(report.next, place)})


def recorded(reader: Reader, run: str | None = None) -> list[Recorded]:
    """The events of `run`, or of all runs, as they stand in the log."""
    rows = [{"seq": row.seq, "at": row.at_s, "key": "", "event": row.event} for row in reader.rows(run=run)]
    return TypeAdapter(list[Recorded]).validate_python(rows)
