"""Merges that lose something are refused, whoever made them; merges that lose nothing are accepted."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.merge.pair import pair, union_of

from ironworks.merge.proof import proof
from ironworks.merge.union import unite

DATA = Path(__file__).parents[1] / "data/cases"
PAIRS = json.loads((DATA / "merge_pairs.json").read_text("utf-8"))
BRANCHES = json.loads((DATA / "branches_python.json").read_text("utf-8"))


def wrong(path: str, base: str | None, ours: str, theirs: str, result: str) -> list[str]:
    old = None if base is None else base.encode()
    findings = proof(path, old, ours.encode(), theirs.encode(), result.encode())
    return [finding.message for finding in findings if finding.fatal]


@pytest.mark.spec("MG-1")
@pytest.mark.parametrize("case", PAIRS, ids=[case["name"] for case in PAIRS])
def test_no_pair_that_must_be_handed_on_is_merged(case: Mapping[str, Any], tmp_path: Path) -> None:
    """Pairs that only a structural merge solves are handed on as well, for now; none is merged wrongly."""
    depot, ours, theirs = pair(tmp_path, case["base"], case["ours"], case["theirs"])
    union = unite(depot, ours, theirs)
    assert not union.hopeless
    if case["expect"] == "hand_on":
        assert union.units
    for unit in union.units:
        assert unit.reason


@pytest.mark.spec("MG-1")
def test_of_real_branches_the_proof_accepts_what_git_merged_and_refuses_either_side_alone(
    tmp_path: Path,
) -> None:
    names = sorted(BRANCHES["branches"])
    proved = handed_on = 0
    for number, (one, other) in enumerate(itertools.combinations(names[:6], 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        depot, ours, theirs = pair(
            folder, BRANCHES["base"], BRANCHES["branches"][one], BRANCHES["branches"][other]
        )
        union = unite(depot, ours, theirs)
        proved += union.proved
        handed_on += len(union.units)
        for unit in union.units:
            assert "git merged this without a conflict" not in unit.reason
            for side in (unit.ours, unit.theirs):
                assert wrong(unit.path, unit.base, unit.ours, unit.theirs, side), (one, other, unit.path)
    assert proved > 0
    assert handed_on > 0


BASE = "import os\n\nLIMIT = 1\n\n\ndef f():\n    return 1\n\n\ndef test_f():\n    assert f() == 1\n"
OURS = BASE.replace("import os\n", "import os\nimport re\n") + "\n\ndef test_a():\n    assert re.escape('')\n"
THEIRS = BASE.replace("return 1", "return 2 - 1") + "\n\ndef test_b():\n    assert f()\n"
GOOD = (
    OURS.replace("return 1", "return 2 - 1") + "\n\ndef test_b():\n    assert f()\n"
)  # What a careful person makes of the two.


def test_a_merge_with_everything_in_it_is_accepted_in_any_order_and_spacing() -> None:
    assert wrong("m.py", BASE, OURS, THEIRS, GOOD) == []
    swapped = GOOD.replace("test_a():\n    assert re.escape('')", "@").replace(
        "test_b():\n    assert f()", "test_a():\n\n    assert re.escape('')"
    )
    assert wrong("m.py", BASE, OURS, THEIRS, swapped.replace("@", "test_b():\n    assert f()")) == []


@pytest.mark.spec("MG-1")
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (f"<<<<<<< ours\n{GOOD}", "markers"),
        (f"{GOOD}>>>>>>> theirs\n", "markers"),
        (GOOD + "def (:\n", "no valid Python"),
        (GOOD.replace("def test_b():\n    assert f()\n", ""), "test test_b is lost"),
        (GOOD.replace("import re\n", ""), "re is used and no longer there"),
        (GOOD.replace("return 2 - 1", "return 1"), "def f is not as its side has it"),
        (GOOD.replace("LIMIT = 1\n", ""), "LIMIT is lost"),
        (GOOD.replace("LIMIT = 1", "LIMIT = 2"), "LIMIT is not as its side has it"),
        (GOOD + "\n\ndef f():\n    return 2 - 1\n", "f is bound twice"),
        (OURS, "test test_b is lost"),
        (THEIRS, "test test_a is lost"),
        (BASE, "test test_a is lost"),
        ("", "is lost"),
    ],
)
def test_python_that_lost_something_is_refused_with_the_reason(result: str, reason: str) -> None:
    assert reason in "\n".join(wrong("m.py", BASE, OURS, THEIRS, result))


def test_what_a_side_removed_stays_removed() -> None:
    ours = BASE.replace("\n\ndef test_f():\n    assert f() == 1\n", "")
    assert wrong("m.py", BASE, ours, BASE + "A = 1\n", ours + "A = 1\n") == []
    assert "there again" in "\n".join(wrong("m.py", BASE, ours, BASE + "A = 1\n", BASE + "A = 1\n"))


def test_one_function_that_both_changed_must_hold_what_each_brought_in() -> None:
    ours, theirs = BASE.replace("return 1", "return g(1)"), BASE.replace("return 1", "return 1 + h()")
    both = BASE.replace("return 1", "return g(1) + h()")
    assert not [told for told in wrong("m.py", BASE, ours, theirs, both) if "lost" in told]
    assert "def f lost h" in "\n".join(wrong("m.py", BASE, ours, theirs, ours))
    assert "def f lost g" in "\n".join(wrong("m.py", BASE, ours, theirs, theirs))


def test_of_two_values_for_one_constant_either_may_be_chosen() -> None:
    ours, theirs = BASE.replace("LIMIT = 1", "LIMIT = 2"), BASE.replace("LIMIT = 1", "LIMIT = 3")
    assert wrong("m.py", BASE, ours, theirs, theirs) == []


JSON = ('{"a": 1, "l": [1]}', '{"a": 1, "b": 2, "l": [1, 2]}', '{"a": 9, "l": [1, 3]}')


@pytest.mark.spec("MG-1")
@pytest.mark.parametrize(
    ("path", "sides", "result", "reason"),
    [
        ("c.json", JSON, '{"a": 9, "b": 2, "l": [1, 2, 3]}', ""),
        ("c.json", JSON, '{"a": 9, "l": [1, 2, 3]}', "b is not as"),
        ("c.json", JSON, '{"a": 1, "b": 2, "l": [1, 2, 3]}', "a is not as"),
        ("c.json", JSON, '{"a": 9, "b": 2, "l": [1, 3]}', "l lost an item"),
        ("c.json", JSON, '{"a": 9, "b": 2, "b": 2, "l": [1, 2, 3]}', "twice"),
        ("c.json", JSON, '{"a": 9, "b": 2,', "cannot be read"),
        ("c.toml", ("a = 1\n", "a = 1\n[x]\nk = 1\n", "a = 2\n"), "a = 2\n[x]\nk = 1\n", ""),
        ("c.toml", ("a = 1\n", "a = 1\n[x]\nk = 1\n", "a = 2\n"), "a = 2\n[x]\n", "x is not as"),
        ("c.toml", ("a = 1\n", "a = 1\n# why\n", "a = 2\n"), "a = 2\n", "a line is lost: # why"),
        ("t.txt", ("a\nb\n", "a\nx\nb\n", "a\ny\nb\n"), "a\nx\ny\nb\n", ""),
        ("t.txt", ("a\nb\n", "a\nx\nb\n", "a\ny\nb\n"), "a\nx\nb\n", "a line is lost: y"),
        ("t.txt", ("a\nb\nc\n", "a\nb\nc\nd\n", "e\nb\nc\n"), "e\nc\nd\n", "a line is lost: b"),
        ("t.txt", ("It is.\n", "It is fast.\n", "It is new.\n"), "It is fast and new.\n", ""),
        ("t.txt", ("It is.\n", "It is fast.\n", "It is new.\n"), "It is new.\n", ""),
        ("t.txt", ("It is.\n", "It is fast.\n", "It is new.\n"), "It is.\n", "what was written is lost"),
        ("t.txt", ("It is.\n", "It is fast.\n", "It is new.\n"), "", "what was written is lost"),
        ("t.txt", ("a\nb\nc\n", "x\n", "a\nB\nc\n"), "x\n", ""),
    ],
)
def test_data_and_text_keep_what_each_side_brought_in(
    path: str, sides: tuple[str, str, str], result: str, reason: str
) -> None:
    told = wrong(path, *sides, result)
    assert (reason in "\n".join(told)) if reason else (told == [])


@pytest.mark.spec("MG-1")
def test_a_changelog_entry_that_ends_up_in_a_released_section_is_refused() -> None:
    base = "# Changelog\n\n## Unreleased\n\n- base\n\n## 1.0\n\n- old\n"
    released = base.replace("## Unreleased\n", "## Unreleased\n\n## 1.1\n")
    entry = base.replace("- base\n", "- base\n- new\n")
    misplaced = released.replace("- base\n", "- base\n- new\n")
    assert "under another heading: - new" in "\n".join(wrong("C.md", base, released, entry, misplaced))
    placed = released.replace("## Unreleased\n", "## Unreleased\n\n- new\n")
    assert wrong("C.md", base, released, entry, placed) == []


@pytest.mark.parametrize("result", [b"a\0b", b"\xff\xfe", b"plain"])
def test_no_text_stands_for_two_versions_of_a_binary_file(result: bytes) -> None:
    assert proof("x.bin", b"\0", b"\0\1", b"\0\2", result)[0].fatal


def test_a_file_that_only_one_side_changed_needs_no_proof() -> None:
    assert proof("x", b"\0", b"\0\1", b"\0", b"\0\1") == []
    assert proof("x", b"a", None, b"a", None) == []
    assert proof("x", b"a", b"a", b"b", b"a")[0].fatal


def test_a_side_that_does_not_parse_is_still_proved_by_its_lines() -> None:
    assert wrong("m.py", "def (\n", "def (\nx = 1\n", "def (\ny = 1\n", "def (\nx = 1\ny = 1\n") == []
    assert wrong("m.py", "def (\n", "def (\nx = 1\n", "def (\ny = 1\n", "def (\nx = 1\n")


def test_markers_that_a_side_itself_has_are_its_own() -> None:
    base = "# how to read\n<<<<<<< ours\n"
    assert wrong("guide.txt", base, base + "x\n", "y\n" + base, "y\n" + base + "x\n") == []


@pytest.mark.parametrize("depth", [200, 500, 800, 880, 2000, 50_000])
def test_a_loss_is_found_at_any_depth_of_nesting(depth: int) -> None:
    deep = "x = " + "-" * depth + "1\n"
    assert wrong("m.py", "", deep, "y = 1\n", deep)
    nested = '{"a":\n' * depth + "1" + "}" * depth
    assert wrong("c.json", "{\n}\n", nested, '{\n"b": 1}\n', "{\n}\n")


def test_more_changes_than_can_be_compared_are_refused() -> None:
    ours, theirs = ("".join(f"{side}{n}\n" for n in range(30_000)) for side in ("a", "b"))
    assert "too many to be proved" in wrong("t.txt", "", ours, theirs, ours + theirs)[0]


def test_json_that_is_more_than_json_is_proved_by_its_lines() -> None:
    base, ours, theirs = (
        '{ // why\n"a": 1\n}\n',
        '{ // why\n"a": 1,\n"b": 2\n}\n',
        '{ // why\n"c": 3,\n"a": 1\n}\n',
    )
    assert wrong("c.json", base, ours, theirs, '{ // why\n"c": 3,\n"a": 1,\n"b": 2\n}\n') == []
    assert wrong("c.json", base, ours, theirs, '{ // why\n"c": 3,\n"a": 1\n}\n')


def test_proof_of_long_files_ends() -> None:
    base = "".join(f"row {n % 50}\n" for n in range(20_000))
    assert wrong("t.txt", base, base + "x\n", "y\n" + base, "y\n" + base + "x\n") == []
    assert wrong("t.txt", base, base + "x\n", "y\n" + base, "y\n" + base)


@pytest.mark.spec("MG-1")
def test_a_union_of_real_branches_is_accepted_only_where_every_name_is_there_once(tmp_path: Path) -> None:
    accepted = 0
    branches = sorted(BRANCHES["branches"])
    for one, other in itertools.combinations(branches, 2):
        ours, theirs = BRANCHES["branches"][one], BRANCHES["branches"][other]
        for path in ours.keys() & theirs.keys():
            if not path.endswith(".py"):
                continue
            base = BRANCHES["base"][path]
            result = union_of(base, ours[path], theirs[path])
            if wrong(path, base, ours[path], theirs[path], result):
                continue
            accepted += 1
            names = [line.split("(")[0] for line in result.splitlines() if line.startswith("def ")]
            assert len(names) == len(set(names)), (one, other)
            wanted = {line.split("(")[0] for text in (ours[path], theirs[path]) for line in text.splitlines()}
            assert {name for name in wanted if name.startswith("def ")} == set(names), (one, other)
            compile(result, path, "exec")
    assert accepted > 50
