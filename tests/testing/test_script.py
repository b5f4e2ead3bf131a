import json
from pathlib import Path

import pytest

from ironworks.core.errors import ConfigError
from ironworks.testing.script import DEFAULT_SCENES, BashStep, HandoffStep, Scene, Script, load_script


@pytest.mark.spec("AG-16")
def test_the_first_scene_that_matches_plays() -> None:
    special = Scene(stage="work", issue="fix-*", round=2, steps=(BashStep(command="two"),))
    general = Scene(stage="work", steps=(BashStep(command="any"),))
    script = Script(scenes=(special, general))
    assert script.scene("work", "fix-add", 2) is special
    assert script.scene("work", "fix-add", 1) is general
    assert script.scene("work", "other", 2) is general
    assert script.scene("resolve", "fix-add", 1) is None


@pytest.mark.spec("AG-16")
def test_triage_builds_and_review_approves_unless_the_script_says_otherwise() -> None:
    assert Script().scene("triage", "x", 1) is DEFAULT_SCENES[0]
    refusing = Scene(stage="review", steps=(HandoffStep(value={"verdict": "request_changes"}),))
    assert Script(scenes=(refusing,)).scene("review", "x", 1) is refusing


@pytest.mark.spec("AG-17")
def test_a_script_is_read_from_json(tmp_path: Path) -> None:
    steps = [
        {"kind": "bash", "command": "ls", "text": "Let me look.", "usage": {"input_tokens": 9}},
        {
            "kind": "write",
            "path": "a",
            "content": "b",
            "fault": {"kind": "status", "status": 529, "times": 1},
        },
        {"kind": "handoff", "value": {"status": "done", "summary": "x"}},
    ]
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"scenes": [{"stage": "work", "steps": steps}]}), "utf-8")
    script = load_script(path)
    assert [step.kind for step in script.scenes[0].steps] == ["bash", "write", "handoff"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"scenes": [{"stage": "work", "steps": [{"kind": "dance"}]}]}', '{"x": 1}', "[" * 99_999],
)
def test_an_unusable_script_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"script\.json is not a usable script"):
        load_script(path)


def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_script(tmp_path / "none.json")
