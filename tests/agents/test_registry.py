import pytest

from ironworks.agents.registry import AGENTS, agent_named
from ironworks.core.errors import ConfigError


@pytest.mark.spec("AG-1")
def test_every_agent_is_found_by_its_own_name() -> None:
    assert set(AGENTS) == {"builtin", "claude-code", "command"}
    assert all(agent_named(name).name == name for name in AGENTS)


@pytest.mark.spec("AG-1")
@pytest.mark.parametrize(
    ("name", "hint"), [("builtn", "did you mean builtin?"), ("zzz", "builtin, claude-code, command")]
)
def test_an_unknown_name_is_an_error_that_suggests(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="no agent called") as caught:
        agent_named(name)
    assert hint in caught.value.hint
