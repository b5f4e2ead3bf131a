"""Steps as calls of the tools that a client offers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ironworks.agents.prompt import header
from ironworks.testing.script import EditStep, Seen, TokenCount
from ironworks.testing.wire import answer

EDIT = EditStep(path="calc.py", old="a - b", new='a + b  # "it\'s"')
PROMPT = {"role": "user", "content": header("work", "fix-add", 1) + "\nPlease."}


def call(*messages: dict[str, Any]) -> dict[str, Any]:
    tools = [{"name": name} for name in ("Bash", "Read", "Edit", "Write", "StructuredOutput")]
    about = Seen(stage="work", issue="fix-add", round=1, prompt="")
    message = answer(EDIT, {"tools": tools, "messages": [*messages]}, about, TokenCount())
    block: dict[str, Any] = message["content"][0]
    return block


def used(name: str, path: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "t1", "name": name, "input": {"file_path": path}}
    return {"role": "assistant", "content": [block]}


@pytest.mark.spec("AG-16")
def test_claude_code_edits_with_its_own_tool_what_it_has_read_in_this_round() -> None:
    assert call(PROMPT, used("Read", "/work/calc.py"))["name"] == "Edit"
    assert call(PROMPT, used("Write", "/work/calc.py"))["name"] == "Edit"
    for messages in ([PROMPT], [PROMPT, used("Read", "/work/b.py")], [used("Read", "/work/calc.py"), PROMPT]):
        assert call(*messages)["name"] == "Bash"


def test_what_it_has_not_read_is_edited_by_a_command(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("return a - b\n")
    command = call(PROMPT)["input"]["command"]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, timeout=30, check=True)
    assert file.read_text() == 'return a + b  # "it\'s"\n'
    again = subprocess.run(["sh", "-c", command], cwd=tmp_path, timeout=30, capture_output=True, text=True)
    assert again.returncode == 1 and "found 0 times" in again.stderr
