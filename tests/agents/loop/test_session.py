import json
from pathlib import Path
from typing import Any

import pytest

from ironworks.agents.loop.session import INTERRUPTED, MAX_TALK, NUDGE, Session, result

CALLS = [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t1"}, {"type": "tool_use", "id": "t2"}]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def contents(session: Session) -> list[Any]:
    return [(message["role"], message["content"]) for message in session.messages]


@pytest.mark.spec("AG-11")
def test_a_session_is_found_again_as_it_was() -> None:
    first = Session("s", resume=False)
    first.open("hello")
    first.add("assistant", [{"type": "text", "text": "hi"}])
    assert contents(Session("s", resume=True)) == contents(first)
    assert Session("s", resume=False).messages == []


@pytest.mark.spec("AG-11")
def test_calls_that_were_cut_off_are_answered_before_the_next_prompt() -> None:
    session = Session("s", resume=False)
    session.open("hello")
    session.add("assistant", CALLS)
    again = Session("s", resume=True)
    again.open("go on")
    assert contents(again)[-1] == (
        "user",
        [
            result("t1", INTERRUPTED, failed=True),
            result("t2", INTERRUPTED, failed=True),
            {"type": "text", "text": "go on"},
        ],
    )


@pytest.mark.spec("AG-11")
def test_the_prompt_that_is_worked_on_is_not_repeated() -> None:
    session = Session("s", resume=False)
    session.open("hello", "a note")
    session.open("hello")
    session.add("assistant", CALLS)
    session.open("hello")
    session.add("assistant", [{"type": "text", "text": "done?"}])
    session.open("hello")
    texts = [block.get("text") for message in session.messages for block in message["content"]]
    assert texts == ["hello", "a note", "x", None, None, None, None, "done?", NUDGE]


@pytest.mark.spec("AG-11")
@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"7"])
def test_a_broken_file_is_a_session_that_is_gone(home: Path, data: bytes) -> None:
    (home / ".ironworks").mkdir()
    (home / ".ironworks" / "s.json").write_bytes(data)
    session = Session("s", resume=True)
    session.open("hello")
    assert contents(session) == [("user", [{"type": "text", "text": "hello"}])]


@pytest.mark.spec("AG-11")
def test_what_tools_said_long_ago_is_forgotten_before_the_model_is_overrun() -> None:
    session = Session("s", resume=False)
    session.open("hello")
    for index in range(100):
        session.add("assistant", [{"type": "tool_use", "id": f"t{index}"}])
        session.add("user", [result(f"t{index}", f"{index} " + "x" * 25_000)])
    assert len(json.dumps(session.messages)) < MAX_TALK + 300_000
    assert session.messages[2]["content"][0]["content"] == "[left out]"
    assert session.messages[-1]["content"][0]["content"].startswith("99 x")
    assert session.messages[0]["content"][0]["text"] == "hello"
    assert len(session.messages) == 201
