"""`ironworks schema`: the published shapes of the handoffs."""

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import closest, print_json
from ironworks.core.errors import MissingError


@click.command("schema")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema of handoff NAME, or of stage NAME's; else all as one object. Always JSON."""
    from ironworks.core.handoffs import ANSWERS, HANDOFFS, schema

    if name in ANSWERS:
        name = ANSWERS[name].__name__
    if name is not None and name not in HANDOFFS:
        hint = closest(name, HANDOFFS) or f"known are: {', '.join(HANDOFFS)}"
        raise MissingError(f"there is no handoff {name!r}", hint=hint)
    print_json(schema(name) if name else {each: schema(each) for each in HANDOFFS})
