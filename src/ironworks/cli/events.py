"""`ironworks events`: the record of what happened, as it stands or as it grows."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ironworks.app.place import factory_pid
from ironworks.cli.options import json_option, place_of, place_options
from ironworks.cli.output import say
from ironworks.store.reader import Reader, Row

POLL_S = 0.3
LONG = frozenset({"kind", "run", "issue", "snapshot", "settings", "handoff"})
WIDTH = 200


@click.command("events")
@click.option("--follow", is_flag=True, help="Go on until the factory ends.")
@click.option("--run", metavar="RUN", help="Only this run.")
@click.option("--issue", metavar="ISSUE", help="Only this issue.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only what came after this number."
)
@place_options
@json_option
def command(
    follow: bool,
    run: str | None,
    issue: str | None,
    after: int,
    repository: Path | None,
    state: Path | None,
    as_json: bool,
) -> None:
    """Print every event, oldest first; --json prints one object a line, whole."""
    place = place_of(repository, state)
    reader = Reader(place.database)
    while True:
        # Asked before reading, so that what a factory wrote last is still read.
        alive = factory_pid(place.state) is not None
        for row in reader.rows(run=run, issue=issue, after=after):
            print(as_json_line(row), flush=True) if as_json else say(as_line(row))
            after = row.seq
        if not follow or not alive:
            return
        time.sleep(POLL_S)


def as_json_line(row: Row) -> str:
    return json.dumps({"seq": row.seq, "at": _when(row.at_s).isoformat(), **row.event})


def as_line(row: Row) -> str:
    event = row.event
    titled = {"title": event["snapshot"]["title"]} if event.get("kind") == "IssueQueued" else {}
    brief = {key: value for key, value in event.items() if key not in LONG}
    shown = {key: value for key, value in (titled | brief).items() if value not in ("", [], {}, None)}
    words = " ".join(f"{key}={_word(value)}" for key, value in shown.items())
    name = event.get("issue") or "-"
    return f"{row.seq:>6} {_when(row.at_s):%H:%M:%S} {name} {event.get('kind')} {words}".rstrip()


def _when(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _word(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value.replace("\n", " ")
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
