"""`ironworks doctor`: what this machine lacks, with the exact fix."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ironworks.cli.options import config_option, json_option, place_of, place_options
from ironworks.cli.output import print_json, say, short
from ironworks.core.errors import IronworksError

if TYPE_CHECKING:
    from ironworks.app.doctor import Check
    from ironworks.core.handoffs import Baseline


@click.command("doctor")
@click.option("--base", is_flag=True, help="Also prepare the base commit and run its suites once.")
@config_option
@place_options
@json_option
def command(
    base: bool, config: Path | None, repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Try everything a run needs and name the fix for what is missing. Exit code: 0 all there, 2 not."""
    from ironworks.app.doctor import examine

    checks = examine(place_of(repository, state), config)
    baseline = None
    if base and all(check.ok or check.name.startswith("provider") for check in checks):
        check, baseline = _base(config, repository, state)
        checks.append(check)
    missing = [check for check in checks if not check.ok]
    if as_json:
        told = {"ok": not missing, "checks": [check._asdict() for check in checks]}
        print_json({**told, "baseline": baseline.model_dump(mode="json")} if baseline else told)
        return 2 if missing else 0
    for check in checks:
        say(f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.detail}")
        if not check.ok and check.fix:
            say(f"         fix: {check.fix}")
    say(f"{len(missing)} of {len(checks)} checks failed" if missing else "everything a run needs is there")
    return 2 if missing else 0


def _base(
    config: Path | None, repository: Path | None, state: Path | None
) -> "tuple[Check, Baseline | None]":
    """Whether the suites can be used on the base commit. Tests that fail there are told, and no obstacle."""
    from ironworks.app.doctor import Check
    from ironworks.cli.station import at_station

    try:
        found = at_station(
            lambda factory: factory.baseline(),
            config=config,
            repository=repository,
            state=state,
            asks=False,
        )
    except IronworksError as error:
        return Check("base", False, error.message, error.hint), None
    failing = (
        f", {len(found.failing)} fail already: {short(', '.join(found.failing), 500)}"
        if found.failing
        else ""
    )
    return Check("base", True, f"{found.passed} tests pass{failing}"), found
