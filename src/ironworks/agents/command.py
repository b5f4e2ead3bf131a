"""Any program as an agent: it reads files that the environment names, and leaves a handoff."""

from ironworks.agents.exchange import Alive, never, run_program
from ironworks.core.errors import ConfigError
from ironworks.core.ports import AgentAnswer, AgentTask, Mount, Sandbox, Transcript

NO_COMMAND = "the command agent has no command"
COMMAND_HINT = 'set `command = ["/agent/run"]` under [agent]'


class CommandAgent:
    """Runs `[agent] command`. It has no sessions: every exchange starts it anew."""

    name = "command"
    mounts: tuple[Mount, ...] = ()

    def __init__(self, alive: Alive = never) -> None:
        self._alive = alive

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        if not task.settings.command:
            raise ConfigError(NO_COMMAND, hint=COMMAND_HINT)
        return await run_program(sandbox, task, transcript, task.settings.command, alive=self._alive)
