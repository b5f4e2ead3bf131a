"""From an agent's exchanges to one validated handoff, or to a reason why there is none."""

from typing import Literal

from pydantic import SerializeAsAny

from ironworks.agents.handoff import parse_handoff
from ironworks.agents.prompt import render_correction
from ironworks.core.models import Model
from ironworks.core.ports import Agent, AgentAnswer, AgentTask, Sandbox, Transcript

MAX_CORRECTIONS = 2
Ending = Literal["handoff", "no_handoff", "invalid", "failed", "timeout", "silent", "cancelled"]


class Dialog(Model):
    """How an attempt ended: with a `handoff`, or without one for the reason in `ending` and `detail`."""

    handoff: SerializeAsAny[Model] | None = None
    session: str | None = None
    ending: Ending
    detail: str = ""
    """For people: the errors, or the last words of the agent."""
    exchanges: int
    agent_s: float
    """Wall seconds the agent ran, all exchanges together."""


async def converse(
    agent: Agent, sandbox: Sandbox, task: AgentTask, transcript: Transcript, *, answer: type[Model]
) -> Dialog:
    """Asks until the handoff fits `answer`: errors go back to the session, at most twice, in the time-out.

    Without a handoff, or with an exit code other than 0, nothing is sent back: that is a failed attempt.
    SandboxError when the sandbox died.
    """
    agent_s = 0.0
    current = task
    for exchange in range(1, MAX_CORRECTIONS + 2):
        given = await agent.run(sandbox, current, transcript)
        agent_s += given.duration_s
        ending, handoff, errors = _judged(given, answer)
        left_s = task.settings.timeout_s - agent_s
        if ending != "invalid" or exchange > MAX_CORRECTIONS or left_s <= 0:
            break
        transcript.event("correction", errors=errors)
        current = _corrected(task, given.session, errors, left_s)
    return Dialog(
        handoff=handoff,
        session=given.session,
        ending=ending,
        detail="\n".join(errors) or given.detail,
        exchanges=exchange,
        agent_s=agent_s,
    )


def _judged(given: AgentAnswer, answer: type[Model]) -> tuple[Ending, Model | None, list[str]]:
    if given.ending != "exited":
        return given.ending, None, []
    if given.exit_code != 0:
        return "failed", None, []
    if given.handoff is None:
        return "no_handoff", None, []
    parsed = parse_handoff(given.handoff, answer)
    return ("invalid", None, parsed) if isinstance(parsed, list) else ("handoff", parsed, [])


def _corrected(task: AgentTask, session: str | None, errors: list[str], left_s: float) -> AgentTask:
    """The next task. An agent without sessions must be told everything again."""
    prompt = render_correction(errors, original="" if session else task.prompt)
    settings = task.settings.model_copy(update={"timeout_s": left_s})
    changed = {"prompt": prompt, "session": session, "settings": settings}
    return task.model_copy(update={**changed, "input": {**task.input, "errors": errors}})
