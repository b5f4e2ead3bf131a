"""A reviewer's finding blocks only when its test really fails, for the reason it is there."""

from pathlib import Path

import pytest
from tests.verify.workshop import PYTEST, Workshop, reporting, shell, workshop

from ironworks.core.handoffs import Reproduction, ReviewFinding, ReviewReport
from ironworks.core.models import Finding

BASE = {
    "calc/__init__.py": "",
    "calc/core.py": (
        "def div(a, b):\n    return a / b\n\n\ndef lazy():\n    return undefined\n\n\n"
        "def late():\n    import nowhere\n\n    return nowhere\n"
    ),
    "tests/test_folder.py/data.txt": "",
    "tests/test_core.py": "from calc.core import div\n\n\ndef test_div():\n    assert div(4, 2) == 2\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
HEAD = "from calc import core\n\n\ndef test_it():\n    "


CASES = [
    (HEAD + "assert core.div(1, 2) == 0\n", "reproduced", "assert 0.5 == 0"),
    (HEAD + "assert core.div(1, 0) is None\n", "reproduced", "ZeroDivisionError"),
    (HEAD + "assert core.lazy() == 1\n", "reproduced", "NameError"),
    (HEAD + "assert core.late() == 1\n", "reproduced", "nowhere"),
    (HEAD + "assert core.div(1, 2) == 0.5\n", "not-reproduced", "its tests pass"),
    (HEAD + "assert cor.div(1, 2) == 0\n", "not-reproduced", "broken"),
    (HEAD + "assert core.no_such_thing() == 0\n", "not-reproduced", "broken"),
    (HEAD + "import nowhere\n", "not-reproduced", "broken"),
    ("import nowhere\n\n\ndef test_it():\n    assert 0\n", "not-reproduced", "broken"),
    ("def test_it(:\n", "not-reproduced", "broken"),
    ("def test_it(no_such_fixture):\n    assert 0\n", "not-reproduced", "broken"),
    ("def check_it():\n    assert 0\n", "not-reproduced", ""),
    ("import os\n\n\ndef test_it():\n    os._exit(1)\n", "not-reproduced", "no report"),
    ("", "not-reproduced", ""),
]
PATHS = {
    "../test_x.py": "no plain path",
    "/tmp/test_x.py": "no plain path",
    ".git/test_x.py": "no plain path",
    "tests//test_x.py": "no plain path",
    "test_\n.py": "no plain path",
    "": "no plain path",
    "calc/core.py": "does not look like a test",
    "a.py": "does not look like a test",
    "tests/test_core.py": "exists already",
    "tests/test_core.py/test_x.py": "exists already",
    "tests/test_folder.py": "exists already",
}


async def reproduce(shop: Workshop, *reproductions: Reproduction) -> tuple[Finding, ...]:
    shown = [
        ReviewFinding(severity="major", claim=f"it breaks, {number}", reproduction=reproduction)
        for number, reproduction in enumerate(reproductions)
    ]
    findings = (ReviewFinding(severity="note", claim="fine"), *shown)
    review = ReviewReport(verdict="request_changes", findings=findings)
    found = await shop.verifier().reproduce(shop.base, review, name="repro")
    assert [finding.message for finding in found] == [finding.claim for finding in shown]
    assert all(finding.fatal == (finding.code == "reproduced") for finding in found)
    return found


@pytest.mark.slow
@pytest.mark.spec("VF-11")
async def test_only_a_failure_of_what_is_tested_is_a_reproduction(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        shown = [Reproduction(path="tests/test_repro.py", content=content) for content, _, _ in CASES]
        for found, (content, code, said) in zip(await reproduce(shop, *shown), CASES, strict=True):
            assert found.code == code, (content, found.detail)
            assert said in found.detail, content


@pytest.mark.slow
@pytest.mark.spec("VF-11")
async def test_a_reproduction_is_a_new_test_file_and_nothing_else(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        content = "def test_it():\n    assert 0\n"
        shown = [Reproduction(path=path, content=content) for path in PATHS]
        found = await reproduce(shop, *shown)
        for finding, (path, reason) in zip(found, PATHS.items(), strict=True):
            assert finding.code == "not-reproduced", path
            assert reason in finding.detail, path


async def test_a_reproduction_runs_in_the_suite_whose_folder_it_is_in(tmp_path: Path) -> None:
    inner = PYTEST.model_copy(update={"name": "inner", "dir": "tests", "command": PYTEST.command})
    async with workshop(tmp_path, BASE) as shop:
        verifier = shop.verifier(shell("exit 5", name="elsewhere", dir="web"), inner, reporting("", code=0))
        shown = Reproduction(path="tests/test_repro.py", content="def test_it():\n    assert 0\n")
        finding = ReviewFinding(severity="blocker", claim="c", reproduction=shown)
        review = ReviewReport(verdict="request_changes", findings=(finding,))
        found = await verifier.reproduce(shop.base, review, name="repro")
        assert found[0].fatal
        assert "inner::" in found[0].detail
