"""What the verbs that command a factory share: check the issue, send, say what came of it."""

from pathlib import Path
from typing import Any

from ironworks.app.control import Verb
from ironworks.app.place import factory_pid
from ironworks.cli.options import place_of, suggestion
from ironworks.cli.output import print_json, say
from ironworks.cli.records import fold, issue_rows, latest_run
from ironworks.core.errors import MissingError
from ironworks.engine.advice import run_command
from ironworks.store.reader import Reader


def send(
    verb: Verb,
    issue: str,
    payload: dict[str, Any],
    *,
    repository: Path | None,
    state: Path | None,
    as_json: bool,
    needs_factory: bool = False,
) -> int:
    """Send one command about `issue` ("" = all); the exit code. MissingError for an unknown issue."""
    place = place_of(repository, state)
    reader = Reader(place.database)
    if issue:
        issue_rows(reader, place, issue)
    if needs_factory and factory_pid(place.state) is None:
        raise MissingError(f"no factory runs for {place.root}", hint="ironworks status")
    from ironworks.app.command import post

    sent = post(place, verb, issue, payload)
    backlog = fold(reader, latest_run(reader, place)).backlog
    step = "" if sent.running else suggestion(run_command(backlog), place)
    failed = (sent.result or "").startswith("error[")
    if as_json:
        print_json({"message": sent.id, "running": sent.running, "result": sent.result, "next": step})
    elif sent.result is not None:
        say(sent.result)
    else:
        say(
            f"{verb} {issue}".strip()
            + (": sent; the factory has not answered yet" if sent.running else ": noted")
        )
        if step:
            say(f"next: {step}")
    return 1 if failed else 0
