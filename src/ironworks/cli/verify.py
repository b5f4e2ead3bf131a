"""`ironworks verify`: prove one branch, as the factory would."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ironworks.cli.options import config_option, json_option, place_options
from ironworks.cli.output import print_json, say, short

if TYPE_CHECKING:
    from ironworks.core.handoffs import Verification

EXIT_CODES = {"passed": 0, "failed": 1, "unverifiable": 2}


@click.command("verify")
@click.argument("branch")
@config_option
@place_options
@json_option
def command(
    branch: str, config: Path | None, repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Merge BRANCH onto its base in a sandbox, prove it. Exit code: 0 passed, 1 failed, 2 unverifiable."""
    from ironworks.cli.station import at_station

    where = {"config": config, "repository": repository, "state": state}
    verification = at_station(lambda factory: factory.verify(branch), **where, asks=False)
    if as_json:
        print_json(verification.model_dump(mode="json"))
    else:
        _print(branch, verification)
    return EXIT_CODES[verification.verdict]


def _print(branch: str, verification: "Verification") -> None:
    outcomes = list(verification.tests.values())
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes)))
    say(f"{branch}: {verification.verdict} ({counts or 'no tests ran'})")
    for finding in verification.findings:
        say(f"  {'!' if finding.fatal else '-'} {finding.code}: {short(finding.message, 300)}")
    proven = verification.fail_to_pass.proven
    if proven:
        say(f"  fails without the change: {short(', '.join(proven), 300)}")
