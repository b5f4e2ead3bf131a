from pathlib import Path
from typing import Any

import pytest

from ironworks.agents.loop.tool import TOOLS, bash, call, edit, offered, read, write


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IW_URL", raising=False)


@pytest.mark.spec("AG-9")
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("dance", {}, "there is no tool dance"),
        ("bash", {}, "bash needs command"),
        ("bash", {"command": 1}, "command must be a string"),
        ("bash", {"command": "x", "timeout_s": "y"}, "timeout_s must be a integer"),
        ("bash", {"unreadable": "{"}, "bash takes command, timeout_s"),
        ("check", {"a": 1}, "check takes nothing"),
        ("edit", ["a"], "edit takes path, old, new"),
        ("check", {}, "there is no factory"),
        ("ask", {"question": "a"}, "there is no factory"),
    ],
)
def test_a_wrong_call_is_explained(name: str, arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(name, arguments)


def test_a_file_is_read_by_lines() -> None:
    Path("f").write_bytes(b"1\n2\r\n3\xff\n4")
    assert read("f") == "1\n2\r\n3\ufffd\n4"
    assert read("f", offset=2, limit=2) == "2\r\n3\ufffd\n"
    assert read("f", offset=-5, limit=1) == "1\n"
    Path("b").write_bytes(b"a\0b")
    assert read("b") == "b is a binary file"


@pytest.mark.parametrize("name", [" a b", "-n", "e\u0301", "🙂/new\nline"])
def test_a_file_of_any_name_is_written_whole(name: str) -> None:
    write(name, "a\r\nb\udcff")
    assert Path(name).read_bytes() == b"a\r\nb\xff"


def test_an_edit_changes_one_place_and_no_other_byte() -> None:
    Path("f").write_bytes(b"one\r\ntwo\xff\r\nthree")
    edit("f", "two", "2")
    assert Path("f").read_bytes() == b"one\r\n2\xff\r\nthree"


@pytest.mark.parametrize(
    ("old", "words"), [("", "is not in f"), ("zero", "is not in f"), ("a", "2 times in f")]
)
def test_an_edit_of_no_place_or_many_changes_nothing(old: str, words: str) -> None:
    Path("f").write_text("a a", "utf-8")
    with pytest.raises(ValueError, match=words):
        edit("f", old, "b")
    assert Path("f").read_text("utf-8") == "a a"


def test_a_command_that_takes_too_long_is_ended_with_its_children() -> None:
    text = bash("echo up; sleep 987653 & sleep 987653", timeout_s=1)
    assert text == "up\n\n[stopped after 1 s]"
    commands = []
    for process in Path("/proc").iterdir():
        try:
            commands.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    assert not [command for command in commands if b"sleep\x00987653" in command]


def test_a_command_has_no_input_and_any_output() -> None:
    assert bash("cat; printf '\\377\\000x'") == "\ufffd\0x\n[exit 0]"


def test_the_end_of_a_long_output_is_kept_and_the_gap_is_told() -> None:
    text = bash("echo first; seq 1 100000; echo last")
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("100000\nlast\n\n[exit 0]")
    assert "bytes left out" in text
    assert len(text) < 50_000


def test_every_tool_offered_has_a_schema_that_names_what_it_needs() -> None:
    tools = offered(list(TOOLS), {"type": "object"})
    assert [tool["name"] for tool in tools] == [*TOOLS, "handoff"]
    for schema in (tool["input_schema"] for tool in tools[:-1]):
        assert set(schema["required"]) <= set(schema["properties"])
