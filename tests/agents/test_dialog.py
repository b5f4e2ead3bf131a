import asyncio
import json
from collections.abc import Sequence

import pytest
from tests.agents.conftest import Place, task_for

from ironworks.agents.command import CommandAgent
from ironworks.agents.dialog import Dialog, converse
from ironworks.agents.transcript import FileTranscript
from ironworks.core.handoffs import WorkReport
from ironworks.core.ports import AgentAnswer, AgentTask, Sandbox, Transcript

GOOD = json.dumps({"status": "done", "summary": "it adds"})
BAD = json.dumps({"status": "great"})


class PlayedAgent:
    """Gives the answers it was made with, one after the other, and keeps what it was asked."""

    name = "played"
    mounts = ()

    def __init__(self, answers: Sequence[AgentAnswer]) -> None:
        self.tasks: list[AgentTask] = []
        self._answers = list(answers)

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        self.tasks.append(task)
        return self._answers.pop(0)


def answered(handoff: str | None, *, session: str | None = "s1", code: int = 0) -> AgentAnswer:
    return AgentAnswer(ending="exited", exit_code=code, handoff=handoff, session=session, duration_s=2.0)


async def play(
    agent: PlayedAgent, place: Place, transcript: FileTranscript, *, timeout_s: float = 60
) -> Dialog:
    task = task_for(timeout_s=timeout_s)
    return await converse(agent, place.sandbox, task, transcript, answer=WorkReport)


@pytest.mark.spec("AG-2")
async def test_a_valid_handoff_ends_the_dialog(place: Place, transcript: FileTranscript) -> None:
    dialog = await play(PlayedAgent([answered(GOOD)]), place, transcript)
    assert dialog.handoff == WorkReport(status="done", summary="it adds")
    assert (dialog.ending, dialog.exchanges, dialog.session, dialog.agent_s) == ("handoff", 1, "s1", 2.0)
    assert json.loads(dialog.to_json())["handoff"]["summary"] == "it adds"


@pytest.mark.spec("AG-3")
async def test_errors_go_back_to_the_same_session_as_a_short_prompt(
    place: Place, transcript: FileTranscript
) -> None:
    agent = PlayedAgent([answered(BAD), answered(GOOD)])
    dialog = await play(agent, place, transcript)
    assert (dialog.ending, dialog.exchanges, dialog.agent_s) == ("handoff", 2, 4.0)
    second = agent.tasks[1]
    assert second.session == "s1"
    assert "summary: Field required" in second.prompt
    assert "do it" not in second.prompt
    assert second.input["errors"] == [
        "status: Input should be 'done', 'blocked' or 'needs_input'",
        "summary: Field required",
    ]
    assert second.settings.timeout_s == 58.0
    assert "correction" in (transcript.folder / "events.jsonl").read_text("utf-8")


@pytest.mark.spec("AG-3")
async def test_an_agent_without_sessions_is_told_everything_again(
    place: Place, transcript: FileTranscript
) -> None:
    agent = PlayedAgent([answered(BAD, session=None), answered(GOOD, session=None)])
    await play(agent, place, transcript)
    assert agent.tasks[1].session is None
    assert agent.tasks[1].prompt.startswith("do it\n")
    assert "summary: Field required" in agent.tasks[1].prompt


@pytest.mark.spec("AG-3")
async def test_after_two_corrections_it_fails_closed(place: Place, transcript: FileTranscript) -> None:
    agent = PlayedAgent([answered(BAD), answered("{"), answered("[]"), answered(GOOD)])
    dialog = await play(agent, place, transcript)
    assert (dialog.handoff, dialog.ending, dialog.exchanges) == (None, "invalid", 3)
    assert dialog.detail == "it must be one JSON object"


@pytest.mark.spec("AG-3")
async def test_corrections_share_the_time_out_of_the_attempt(
    place: Place, transcript: FileTranscript
) -> None:
    agent = PlayedAgent([answered(BAD), answered(BAD), answered(GOOD)])
    dialog = await play(agent, place, transcript, timeout_s=3)
    assert (dialog.ending, dialog.exchanges) == ("invalid", 2)


@pytest.mark.spec("AG-2")
@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (answered(None), "no_handoff"),
        (answered(GOOD, code=1), "failed"),
        (AgentAnswer(ending="exited", exit_code=-9), "failed"),
        (AgentAnswer(ending="timeout", handoff=GOOD), "timeout"),
        (AgentAnswer(ending="silent", handoff=GOOD), "silent"),
        (AgentAnswer(ending="cancelled", handoff=GOOD), "cancelled"),
    ],
)
async def test_all_else_is_a_failed_attempt_and_nothing_is_sent_back(
    place: Place, transcript: FileTranscript, answer: AgentAnswer, ending: str
) -> None:
    dialog = await play(PlayedAgent([answer]), place, transcript)
    assert (dialog.handoff, dialog.ending, dialog.exchanges) == (None, ending, 1)


@pytest.mark.spec("AG-3")
async def test_a_real_program_mends_its_handoff_when_told(place: Place, transcript: FileTranscript) -> None:
    script = """
        if grep -q '"errors"' "$IRONWORKS_INPUT"
        then echo '{"status": "done", "summary": "mended"}'
        else echo '{"status": "done"}'
        fi > "$IRONWORKS_HANDOFF"
    """
    task = task_for(command=("sh", "-c", script))
    dialog = await asyncio.wait_for(
        converse(CommandAgent(), place.sandbox, task, transcript, answer=WorkReport), 60
    )
    assert (dialog.ending, dialog.exchanges) == ("handoff", 2)
    assert dialog.handoff == WorkReport(status="done", summary="mended")
