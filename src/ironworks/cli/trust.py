"""`ironworks trust`: the operator agrees to exactly this `ironworks.toml`."""

from pathlib import Path

import click

from ironworks.cli.options import json_option, place_of, place_options
from ironworks.cli.output import print_json, say


@click.command("trust")
@place_options
@json_option
def command(repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Show what the repository's ironworks.toml asks of this machine, and agree to exactly that."""
    from ironworks.app.base import base_reader
    from ironworks.app.configuration import host_wishes, read_own
    from ironworks.app.trust import TrustStore

    place = place_of(repository, state)
    data, table, label = read_own(place, base_reader(place.root))
    digest = TrustStore().record(place.root, data)
    wishes = host_wishes(table)
    if as_json:
        print_json({"repository": str(place.root), "file": label, "sha256": digest, "grants": wishes})
        return
    say(data.decode("utf-8", "replace").rstrip())
    say(f"\ntrusted for {place.root}, until it changes: {', '.join(wishes) or 'it asks for nothing'}")
