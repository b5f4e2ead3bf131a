"""`ironworks integrate`: merge branches one by one, suite after each."""

from pathlib import Path

import click

from ironworks.cli.options import config_option, json_option, place_of, place_options, suggestion
from ironworks.cli.output import gist, print_json, say
from ironworks.core.policy import INTEGRATION_PULL


@click.command("integrate")
@click.argument("branches", nargs=-1, required=True)
@config_option
@place_options
@json_option
def command(
    branches: tuple[str, ...], config: Path | None, repository: Path | None, state: Path | None, as_json: bool
) -> int:
    """Merge BRANCHES onto ironworks/integration, the suite after each; pull requests say what came of it.

    Exit code: 0 all landed, 1 not.
    """
    from ironworks.cli.station import at_station

    integration = at_station(
        lambda factory: factory.integrate(branches), config=config, repository=repository, state=state
    )
    if as_json:
        print_json(integration.model_dump(mode="json"))
    else:
        for landing in integration.merged:
            say(f"landed  {landing.issue} as {landing.commit[:12]}")
        for eviction in integration.evicted:
            say(f"evicted {eviction.issue}: {eviction.reason}: {gist(eviction.detail, 400)}")
        say(
            f"{integration.branch} is at {integration.commit[:12]}, after {integration.suite_runs} suite runs"
        )
        if integration.merged:
            say(f"next: {suggestion(f'ironworks pr merge {INTEGRATION_PULL}', place_of(repository, state))}")
    return 0 if len(integration.merged) == len(branches) and not integration.evicted else 1
