"""`ironworks schema`: the published shapes of the handoffs."""

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import closest, print_json
from ironworks.core.errors import MissingError


@click.command("schema")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema of handoff NAME, or all of them as one object by name. Always JSON."""
    from ironworks.core.handoffs import HANDOFFS, schema

    if name is not None and name not in HANDOFFS:
        hint = closest(name, HANDOFFS) or f"known are: {', '.join(HANDOFFS)}"
        raise MissingError(f"there is no handoff {name!r}", hint=hint)
    print_json(schema(name) if name else {each: schema(each) for each in HANDOFFS})
