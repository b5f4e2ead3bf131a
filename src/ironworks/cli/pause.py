"""`ironworks pause`: freeze the running factory, or one issue."""

from pathlib import Path

import click

from ironworks.cli.options import json_option, place_options
from ironworks.cli.sending import send


@click.command("pause")
@click.argument("issue", default="")
@place_options
@json_option
def command(issue: str, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Freeze the running factory, or only ISSUE, until `ironworks resume`."""
    where = {"repository": repository, "state": state}
    return send("pause", issue, {}, **where, as_json=as_json, needs_factory=True)
