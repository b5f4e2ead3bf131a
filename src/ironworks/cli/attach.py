"""`ironworks attach`: watch the run that goes on in the background."""

import time
from pathlib import Path

import click

from ironworks.app.place import Place, factory_pid
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import note, print_json, say
from ironworks.cli.records import latest_run, next_step
from ironworks.cli.status import as_data
from ironworks.cli.table import View
from ironworks.store.reader import Reader

POLL_S = 0.3


@click.command("attach")
@click.option("--quiet", is_flag=True, help="Show no progress, only wait.")
@place_options
@json_option
def command(quiet: bool, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Show the newest run until it ends, and exit as it does. Ctrl-C only leaves; the run goes on."""
    place = place_of(repository, state)
    reader = Reader(place.database)
    run = latest_run(reader, place)
    with View(place.logs, quiet=quiet) as view:
        try:
            _watch(view, reader, place, run)
        except KeyboardInterrupt:
            note(f"left; {run} goes on")
            return 0
    progress = view.progress
    step = suggestion(next_step(progress), place)
    if as_json:
        print_json(as_data(place, progress, None, reader.waiting(), step))
    else:
        ending = (
            "was interrupted" if progress.exit_code is None else f"ended with exit code {progress.exit_code}"
        )
        say(f"{run} {ending}\nnext: {step}")
    return 3 if progress.exit_code is None else progress.exit_code


def _watch(view: View, reader: Reader, place: Place, run: str) -> None:
    """Show what is recorded until the run has finished, or its process is gone."""
    after = 0
    while True:
        alive = factory_pid(place.state) is not None
        for row in reader.rows(run=run, after=after):
            view.apply(row.at_s, row.event)
            after = row.seq
        if view.progress.finished_s is not None or not alive:
            return
        time.sleep(POLL_S)
