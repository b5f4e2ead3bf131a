"""Which model an agent is to ask, and where it answers."""

from ironworks.core.errors import ConfigError
from ironworks.core.ports import AgentTask


def model_of(task: AgentTask, agent: str) -> dict[str, str]:
    """`base_url`, `model`, `key` for an agent that speaks the Anthropic Messages API.

    The setting is `provider/model`, or a model of the first such provider. ConfigError when there is none.
    """
    name = task.settings.model
    provider, _, rest = name.partition("/")
    url = task.env.get(f"IRONWORKS_PROVIDER_{provider.upper().replace('-', '_')}_URL") if rest else None
    base_url = url or task.env.get("ANTHROPIC_BASE_URL")
    if not name:
        raise ConfigError(f"{agent} needs a model", hint='set `model = "..."` under [agent]')
    if not base_url:
        raise ConfigError(
            f"{agent} needs a provider that speaks the Anthropic Messages API",
            hint='add a [providers.NAME] table with kind = "anthropic"',
        )
    key = task.env.get("ANTHROPIC_API_KEY", "dummy")
    return {"base_url": base_url, "model": rest if url else name, "key": key}
