"""The agents by name."""

import difflib
from collections.abc import Callable, Mapping

from ironworks.agents.builtin import BuiltinAgent
from ironworks.agents.claude_code import CLAUDE_CODE, ClaudeCodeAgent
from ironworks.agents.command import COMMAND_HINT, NO_COMMAND, CommandAgent
from ironworks.agents.exchange import Alive, never
from ironworks.agents.program import Program, programs_folder
from ironworks.core.errors import ConfigError
from ironworks.core.ports import Agent
from ironworks.core.settings import AgentSettings

AGENTS: Mapping[str, Callable[[Alive], Agent]] = {
    "builtin": BuiltinAgent,
    "claude-code": ClaudeCodeAgent,
    "command": CommandAgent,
}
PROGRAMS: Mapping[str, Program] = {"claude-code": CLAUDE_CODE}
"""What must be installed before an agent can work."""


def agent_named(name: str, *, alive: Alive = never) -> Agent:
    """The agent called `name`. `alive` gives the monotonic second of the last model traffic."""
    if name not in AGENTS:
        close = difflib.get_close_matches(name, AGENTS, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(AGENTS)}"
        raise ConfigError(f"there is no agent called {name!r}", hint=hint)
    return AGENTS[name](alive)


def check_agent(settings: AgentSettings) -> str:
    """The agent's name. ConfigError for what would otherwise show only in a sandbox."""
    name = agent_named(settings.use).name
    if name == CommandAgent.name and not settings.command:
        raise ConfigError(NO_COMMAND, hint=COMMAND_HINT)
    return name


def install_program(name: str, say: Callable[[str], None]) -> None:
    """Fetch what agent `name` needs, unless it is there. ConfigError says what is in the way."""
    if name in PROGRAMS:
        PROGRAMS[name].install(programs_folder(), say)
