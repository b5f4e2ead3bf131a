"""What every working verb does first: settings read, agents known, warnings said."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ironworks.agents.registry import check_agent, install_program
from ironworks.app.base import base_reader
from ironworks.app.configuration import NO_OVERRIDES, Loaded, Overrides, load
from ironworks.app.place import Place
from ironworks.app.provider import check_keys
from ironworks.cli.output import note
from ironworks.core.errors import ConfigError
from ironworks.core.models import Issue


def loaded_for(
    place: Place, config: Path | None, overrides: Overrides = NO_OVERRIDES, *, asks: bool = True
) -> Loaded:
    """The settings that count. Raises ConfigError for whatever could only fail later, in a sandbox.

    What the agents need must be there, or is installed, if the verb `asks` them anything.
    """
    loaded = load(place, base_reader(place.root), file=config, overrides=overrides)
    for agent in (loaded.settings.agent, *loaded.settings.stages.values()):
        name = check_agent(agent)
        if asks:
            install_program(name, note)
    if asks:
        check_keys(loaded)
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    return loaded


def install_wished(issues: Iterable[Issue], say: Callable[[str], None]) -> None:
    """What the agents need that entries name for themselves. What fails costs those entries alone."""
    for name in {issue.wishes.agent for issue in issues if issue.wishes.agent and not issue.closed}:
        try:
            install_program(name, say)
        except ConfigError as error:
            say(f"warning: {error.message}; {error.hint}")
