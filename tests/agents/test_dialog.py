import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ironworks.agents.command import CommandAgent
from ironworks.agents.dialog import Dialog, converse
from ironworks.agents.transcript import FileTranscript
from ironworks.core.handoffs import WorkReport
from ironworks.core.ports import AgentAnswer, AgentTask, Sandbox, Transcript
from tests.agents.conftest import Attached, task_for

GOOD = json.dumps({"status": "done", "summary": "it adds"})
BAD = json.dumps({"status": "great"})


class PlayedAgent:
    """Gives the answers it was made with, one after the other, and keeps what it was asked."""

    name = "played"

    def __init__(self, answers: Sequence[AgentAnswer]) -> None:
        self.tasks: list[AgentTask] = []
        self._answers = list(answers)

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        self.tasks.append(task)
        return self._answers.pop(0)


def answered(handoff: str | None, *, session: str | None = "s1", code: int = 0) -> AgentAnswer:
    return AgentAnswer(ending="exited", exit_code=code, handoff=handoff, session=session, duration_s=2.0)


async def play(agent: PlayedAgent, attached: Attached, tmp_path: Path, **settings: object) -> Dialog:
    transcript = FileTranscript(tmp_path / "logs")
    try:
        return await converse(
            agent, attached.sandbox, task_for(**settings), transcript, answer=WorkReport  # type: ignore[arg-type]
        )  # fmt: skip
    finally:
        transcript.close()


@pytest.mark.spec("AG-2")
async def test_a_valid_handoff_ends_the_dialog(attached: Attached, tmp_path: Path) -> None:
    dialog = await play(PlayedAgent([answered(GOOD)]), attached, tmp_path)
    assert dialog.handoff == WorkReport(status="done", summary="it adds")
    assert (dialog.ending, dialog.exchanges, dialog.session, dialog.agent_s) == ("handoff", 1, "s1", 2.0)
    assert json.loads(dialog.to_json())["handoff"]["summary"] == "it adds"


@pytest.mark.spec("AG-3")
async def test_errors_go_back_to_the_same_session_as_a_short_prompt(
    attached: Attached, tmp_path: Path
) -> None:
    agent = PlayedAgent([answered(BAD), answered(GOOD)])
    dialog = await play(agent, attached, tmp_path)
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
    assert "correction" in (tmp_path / "logs" / "events.jsonl").read_text("utf-8")


@pytest.mark.spec("AG-3")
async def test_an_agent_without_sessions_is_told_everything_again(attached: Attached, tmp_path: Path) -> None:
    agent = PlayedAgent([answered(BAD, session=None), answered(GOOD, session=None)])
    await play(agent, attached, tmp_path)
    assert agent.tasks[1].session is None
    assert agent.tasks[1].prompt.startswith("do it\n")
    assert "summary: Field required" in agent.tasks[1].prompt


@pytest.mark.spec("AG-3")
async def test_after_two_corrections_it_fails_closed(attached: Attached, tmp_path: Path) -> None:
    agent = PlayedAgent([answered(BAD), answered("{"), answered("[]"), answered(GOOD)])
    dialog = await play(agent, attached, tmp_path)
    assert (dialog.handoff, dialog.ending, dialog.exchanges) == (None, "invalid", 3)
    assert dialog.detail == "it must be one JSON object"


@pytest.mark.spec("AG-3")
async def test_corrections_share_the_time_out_of_the_attempt(attached: Attached, tmp_path: Path) -> None:
    agent = PlayedAgent([answered(BAD), answered(BAD), answered(GOOD)])
    dialog = await play(agent, attached, tmp_path, timeout_s=3)
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
    attached: Attached, tmp_path: Path, answer: AgentAnswer, ending: str
) -> None:
    dialog = await play(PlayedAgent([answer]), attached, tmp_path)
    assert (dialog.handoff, dialog.ending, dialog.exchanges) == (None, ending, 1)


@pytest.mark.spec("AG-3")
async def test_a_real_program_mends_its_handoff_when_told(attached: Attached, tmp_path: Path) -> None:
    script = """
        if grep -q '"errors"' "$IRONWORKS_INPUT"
        then echo '{"status": "done", "summary": "mended"}'
        else echo '{"status": "done"}'
        fi > "$IRONWORKS_HANDOFF"
    """
    transcript = FileTranscript(tmp_path / "logs")
    task = task_for(command=("sh", "-c", script))
    dialog = await asyncio.wait_for(
        converse(CommandAgent(), attached.sandbox, task, transcript, answer=WorkReport), 60
    )
    transcript.close()
    assert (dialog.ending, dialog.exchanges) == ("handoff", 2)
    assert dialog.handoff == WorkReport(status="done", summary="mended")
