"""`ironworks retry`: give an issue that rests another try."""

from pathlib import Path

import click

from ironworks.cli.options import json_option, place_options
from ironworks.cli.sending import send


@click.command("retry")
@click.argument("issue")
@click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), metavar="X", help="Its new cap.")
@place_options
@json_option
def command(
    issue: str, budget_usd: float | None, repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Queue ISSUE anew: at once if a factory runs, else in the next run."""
    payload = {} if budget_usd is None else {"budget_usd": budget_usd}
    return send("retry", issue, payload, repository=repository, state=state, as_json=as_json)
