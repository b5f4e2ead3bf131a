"""Every clause of the specification is proved by a test, and every such test names a real clause."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLAUSE = re.compile(r"^\s*(?:[-*] )?\*\*([A-Z]{2,}-\d+)\*\*", re.MULTILINE)


def clauses(text: str) -> list[str]:
    return CLAUSE.findall(text)


def marks(source: str) -> Iterator[str]:
    """The clauses named by `pytest.mark.spec(...)` anywhere in a test module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            yield from (str(ast.literal_eval(argument)) for argument in node.args)


def specified(*names: str) -> list[str]:
    pages = sorted(page for name in names for page in ROOT.glob(name))
    return [clause for page in pages for clause in clauses(page.read_text("utf-8"))]


def proved() -> dict[str, str]:
    tests = (ROOT / "tests").rglob("test_*.py")
    return {mark: str(test.relative_to(ROOT)) for test in tests for mark in marks(test.read_text("utf-8"))}


@pytest.mark.spec("PJ-1")
def test_every_clause_has_a_test() -> None:
    assert sorted(set(specified("SPEC.md")) - proved().keys()) == []


@pytest.mark.spec("PJ-1")
def test_every_mark_names_a_clause() -> None:
    known = set(specified("SPEC.md"))
    assert {clause: test for clause, test in proved().items() if clause not in known} == {}


def test_no_clause_is_numbered_twice() -> None:
    assert [clause for clause, count in Counter(specified("SPEC.md")).items() if count > 1] == []


def test_a_clause_is_a_bold_number_at_the_start_of_a_line() -> None:
    assert clauses("**AB-1** x\n- **AB-2** y\nas **AB-3** says\n**ab-4** z\n") == ["AB-1", "AB-2"]


def test_a_mark_is_found_on_tests_parameters_and_modules() -> None:
    source = (
        "pytestmark = pytest.mark.spec('AB-1')\n@pytest.mark.spec('AB-2')\ndef test_x(): ...\n"
        "p = pytest.param(1, marks=pytest.mark.spec('AB-3'))\n# pytest.mark.spec('AB-4')\n"
    )
    assert sorted(marks(source)) == ["AB-1", "AB-2", "AB-3"]
