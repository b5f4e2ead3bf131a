"""`ironworks answer`: answer an issue's questions."""

from pathlib import Path

import click

from ironworks.cli.options import json_option, place_options
from ironworks.cli.sending import send
from ironworks.core.errors import UsageError

ANSWER_CHARACTERS = 20_000


@click.command("answer")
@click.argument("issue")
@click.argument("text", nargs=-1, required=True)
@place_options
@json_option
def command(
    issue: str, text: tuple[str, ...], repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Tell the worker of ISSUE what it asked; TEXT (after `--` if it starts with a dash) is your guidance."""
    words = " ".join(text).encode("utf-8", "replace").decode().strip()
    if not words or len(words) > ANSWER_CHARACTERS:
        raise UsageError(f"an answer has between 1 and {ANSWER_CHARACTERS} characters")
    return send("answer", issue, {"text": words}, repository=repository, state=state, as_json=as_json)
