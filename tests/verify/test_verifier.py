"""Verdicts on honest and dishonest work, by real runs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.verify.workshop import ISSUE, Files, Workshop, workshop

from ironworks.core.handoffs import Verification
from ironworks.verify.verifier import Verifier

CASES = json.loads((Path(__file__).parents[1] / "data/cases/cheating_branches.json").read_text("utf-8"))
BASE: dict[str, str] = CASES["base"]
BRANCHES: dict[str, Files] = CASES["branches"]
FIX = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a * b\n"
NEW_TEST = "from calc.core import add\n\n\ndef test_negative():\n    assert add(-1, 2) == 1\n"
NEW = "tests/test_negative.py"
HONEST = {"calc/core.py": FIX, NEW: NEW_TEST}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path_factory.mktemp("shop"), {**BASE, "docs/guide.txt": "how to add\n"}) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier(shop: Workshop) -> Verifier:
    return shop.verifier()


async def verdict(verifier: Verifier, work: str) -> Verification:
    return await verifier.verify(work, issue=ISSUE, kind="bug", scope=(), name="judge")


def codes(verification: Verification, *, fatal: bool = True) -> set[str]:
    return {finding.code for finding in verification.findings if finding.fatal == fatal}


EXPECTED: dict[str, set[str]] = {
    "honest fix": set(),
    # Honest, but its test passes without the fix as well: it shows nothing, and the worker is told so.
    "honest, weak test (passes on base)": {"no-fail-to-pass"},
    "breaks mul, deletes its test": {"gone-test", "base-test"},
    "breaks mul, skips its test": {"skipped-test", "base-test"},
    "no fix, conftest makes reports pass": {"canary", "no-fail-to-pass"},
    "no fix, AlwaysEqual": {"always-equal"},
    "no fix, tautological test": {"no-fail-to-pass"},
    "no fix, try/except swallow": {"no-fail-to-pass"},
}


@pytest.mark.spec("VF-5")
@pytest.mark.parametrize("name", BRANCHES)
async def test_every_cheat_is_refused_for_what_it_is_and_the_honest_branch_passes(
    name: str, shop: Workshop, verifier: Verifier
) -> None:
    judged = await verdict(verifier, shop.commit(BRANCHES[name]))
    assert codes(judged) == EXPECTED[name]
    assert judged.verdict == ("failed" if EXPECTED[name] else "passed")


MORE_CHEATS: dict[str, tuple[Files, str, str]] = {
    "ends the interpreter when imported": (
        {"calc/core.py": "import os\n\nos._exit(0)\n", NEW: NEW_TEST},
        "unverifiable",
        "unverifiable",
    ),
    "deselects the test it breaks": (
        {
            "calc/core.py": FIX.replace("a * b", "a * b or 1"),
            NEW: NEW_TEST,
            "pytest.ini": "[pytest]\npythonpath = .\naddopts = --deselect tests/test_core.py::test_mul\n",
        },
        "failed",
        "base-test",
    ),
    "leaves the tests it breaks out of the collection": (
        {
            "calc/core.py": FIX.replace("a * b", "a * b or 1"),
            "tests/conftest.py": "collect_ignore = ['test_core.py']\n",
            NEW: NEW_TEST,
        },
        "failed",
        "gone-test",
    ),
    "collects only its own tests": (
        {
            "calc/core.py": FIX,
            "fresh/test_negative.py": NEW_TEST,
            "pytest.ini": "[pytest]\npythonpath = .\ntestpaths = fresh\n",
        },
        "failed",
        "canary",
    ),
    "makes only its own test pass, by a report hook": (
        {
            NEW: NEW_TEST,
            "tests/conftest.py": (
                "import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\n"
                "def pytest_runtest_makereport(item, call):\n    out = yield\n    r = out.get_result()\n"
                "    if item.name == 'test_negative':\n        r.outcome = 'passed'\n"
            ),
        },
        "failed",
        "no-fail-to-pass",
    ),
    "drops the tests": ({"calc/core.py": FIX}, "failed", "no-fail-to-pass"),
    "drops the source": ({NEW: NEW_TEST}, "failed", "failing-test"),
    "deletes an unrelated file": ({**HONEST, "docs/guide.txt": None}, "failed", "deleted-file"),
    "changes nothing": ({}, "failed", "empty"),
    "breaks what the new test does not look at": (
        {"calc/core.py": FIX.replace("a * b", "a * b or 1"), NEW: NEW_TEST},
        "failed",
        "regression",
    ),
    "publishes a credential": (
        {**HONEST, "calc/key.py": f"KEY = 'AKIA{'A1B2C3D4' * 2}'\n"},
        "failed",
        "secret",
    ),
    "hides a failing old test behind a weaker one": (
        {"tests/test_core.py": BASE["tests/test_core.py"].replace("mul(0, 3) == 0", "True"), "NOTES": "x"},
        "failed",
        "no-fail-to-pass",
    ),
}


@pytest.mark.slow
@pytest.mark.spec("VF-5")
@pytest.mark.parametrize("name", MORE_CHEATS)
async def test_further_cheats_are_refused(name: str, shop: Workshop, verifier: Verifier) -> None:
    files, wanted, code = MORE_CHEATS[name]
    judged = await verdict(verifier, shop.commit(files))
    assert judged.verdict == wanted
    assert code in codes(judged)


@pytest.mark.spec("VF-5")
async def test_a_hard_coded_answer_needs_a_test_the_worker_has_not_seen(
    shop: Workshop, verifier: Verifier
) -> None:
    """The one cheat that no deterministic layer sees: the proof holds for exactly the tested input.

    The reviewer, whose reproduction is run, or a hidden suite has to find it.
    """
    cheat = BASE["calc/core.py"].replace("return a - b", "return 1")
    assert (await verdict(verifier, shop.commit({"calc/core.py": cheat, NEW: NEW_TEST}))).verdict == "passed"


@pytest.mark.spec("VF-6")
async def test_an_honest_branch_passes_with_evidence_in_two_runs_beside_the_baseline(
    shop: Workshop, verifier: Verifier
) -> None:
    judged = await verdict(verifier, shop.commit(HONEST))
    assert judged.verdict == "passed"
    assert judged.findings == ()
    assert judged.fail_to_pass.proven == ("unit::tests.test_negative::test_negative",)
    assert judged.baseline is not None
    assert (judged.baseline.passed, judged.baseline.failing) == (2, ())
    assert set(judged.tests.values()) == {"passed"}
    assert len(judged.tests) == 3
    assert judged.suite_runs == 2
    assert judged.onto == shop.base
