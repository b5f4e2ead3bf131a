"""`ironworks resume`: go on after a pause."""

from pathlib import Path

import click

from ironworks.cli.options import json_option, place_options
from ironworks.cli.sending import send


@click.command("resume")
@click.argument("issue", default="")
@place_options
@json_option
def command(issue: str, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Go on with what was paused: the whole factory, or only ISSUE."""
    where = {"repository": repository, "state": state}
    return send("resume", issue, {}, **where, as_json=as_json, needs_factory=True)
