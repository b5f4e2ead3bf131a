from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ironworks.agents.loop.event import Stop
from ironworks.agents.loop.run import turn
from ironworks.agents.loop.session import Session

Ask = Callable[[list[dict[str, Any]]], dict[str, Any]]


def answering(message: dict[str, Any]) -> Ask:
    return lambda messages: message


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("IW_URL", raising=False)
    session = Session("s", resume=False)
    session.open("hello")
    return session


@pytest.mark.spec("AG-12")
@pytest.mark.parametrize(
    "message",
    [
        {"content": []},
        {"content": [{"type": "text", "text": "No."}], "stop_reason": "refusal"},
    ],
)
def test_a_refusal_is_no_handoff(session: Session, message: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Stop, match="refused") as caught:
        turn(session, answering(message), str(tmp_path / "out"))
    assert caught.value.code == 3
    assert len(session.messages) == 1


def test_several_calls_of_one_answer_are_all_answered(session: Session, tmp_path: Path) -> None:
    calls = [
        {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "echo one"}},
        {"type": "tool_use", "id": "b", "name": "dance", "input": {}},
        {"type": "tool_use", "id": "c", "name": "handoff", "input": {"ok": 1}},
    ]
    assert turn(session, answering({"content": calls}), str(tmp_path / "out"))
    results = session.messages[-1]["content"]
    assert [(block["tool_use_id"], block["is_error"]) for block in results] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert (tmp_path / "out").read_text("utf-8") == '{"ok": 1}'
