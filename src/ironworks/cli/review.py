"""`ironworks review`: have an agent review one branch."""

from pathlib import Path

import click

from ironworks.cli.options import config_option, json_option, place_options
from ironworks.cli.output import print_json, say, short


@click.command("review")
@click.argument("branch")
@config_option
@place_options
@json_option
def command(
    branch: str, config: Path | None, repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Have the reviewing agent judge BRANCH in a sandbox of its own. Exit code: 0 approved, 1 not."""
    from ironworks.cli.station import at_station

    report = at_station(
        lambda factory: factory.review(branch), config=config, repository=repository, state=state
    )
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        say(f"{branch}: {report.verdict}")
        for finding in report.findings:
            place = f"{finding.path}:{finding.line or ''} ".removeprefix(": ") if finding.path else ""
            say(f"  {finding.severity}: {place}{short(finding.claim, 400)}")
    return 0 if report.verdict == "approve" else 1
