"""Which model providers a run asks, and whether it has their keys."""

from ironworks.agents.command import CommandAgent
from ironworks.app.configuration import Loaded
from ironworks.core.errors import ConfigError
from ironworks.core.settings import AgentSettings, ProviderSettings


def asked_providers(loaded: Loaded) -> tuple[str, ...]:
    """The names of the providers that the configured agents ask, as far as the settings tell: those that a
    model is named with (`provider/model`), and for a bare model the first that speaks Anthropic's API.

    A `command` asks whom it likes.
    """
    settings = loaded.settings
    agents = (settings.agent, *settings.stages.values())
    asked = (_asked(agent, settings.providers) for agent in agents)
    return tuple(dict.fromkeys(name for name in asked if name is not None))


def _asked(agent: AgentSettings, providers: dict[str, ProviderSettings]) -> str | None:
    named = agent.model.partition("/")[0]
    if named in providers and "/" in agent.model:
        return named
    if agent.use == CommandAgent.name:
        return None
    return next((name for name, provider in providers.items() if provider.kind == "anthropic"), None)


def check_keys(loaded: Loaded) -> None:
    """ConfigError if a provider that is going to be asked has no key."""
    for name in asked_providers(loaded):
        if problem := missing_key(loaded, name):
            raise ConfigError(f"provider {name} has no key: {problem.message}", hint=problem.hint)


def missing_key(loaded: Loaded, name: str) -> ConfigError | None:
    """Why the key of provider `name` cannot be had, if it needs one."""
    key = loaded.settings.providers[name].key
    try:
        if key is not None:
            loaded.secrets.resolve(key)
    except ConfigError as error:
        return error
    return None
