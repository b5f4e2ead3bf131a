"""`ironworks doctor`: what this machine lacks, with the exact fix."""

from pathlib import Path

import click

from ironworks.cli.options import config_option, json_option, place_of, place_options
from ironworks.cli.output import print_json, say


@click.command("doctor")
@config_option
@place_options
@json_option
def command(config: Path | None, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Try everything a run needs and name the fix for what is missing. Exit code: 0 all there, 2 not."""
    from ironworks.app.doctor import examine

    checks = examine(place_of(repository, state), config)
    missing = [check for check in checks if not check.ok]
    if as_json:
        print_json({"ok": not missing, "checks": [check._asdict() for check in checks]})
        return 2 if missing else 0
    for check in checks:
        say(f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.detail}")
        if not check.ok and check.fix:
            say(f"         fix: {check.fix}")
    say(f"{len(missing)} of {len(checks)} checks failed" if missing else "everything a run needs is there")
    return 2 if missing else 0
