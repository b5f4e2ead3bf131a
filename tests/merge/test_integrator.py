"""Pull requests land whole and green, or are evicted with a reason."""

import json
from pathlib import Path

import pytest
from tests.merge.pair import union_of
from tests.verify.workshop import Workshop, reporting, shell, workshop

from ironworks.core.handoffs import Conflicts, Resolution
from ironworks.core.models import PullRequest
from ironworks.merge.integrator import ConflictUnit, Integrator, Landed, Refused

BRANCHES = json.loads((Path(__file__).parents[1] / "data/cases/branches_python.json").read_text("utf-8"))
BASE = {
    "m.py": "def f():\n    return 1\n",
    "tests/test_m.py": "from m import f\n\n\ndef test_f():\n    assert f() == 1\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
TEST_A = "\n\ndef test_a():\n    assert f() < 3\n"
TEST_B = "\n\ndef test_b():\n    assert f() < 4\n"
A = {"tests/test_m.py": BASE["tests/test_m.py"] + TEST_A}
B = {"tests/test_m.py": BASE["tests/test_m.py"] + TEST_B}
BOTH = BASE["tests/test_m.py"] + TEST_A + TEST_B


class Answers:
    """A resolver that gives these texts, one after the other, and keeps what it was asked."""

    def __init__(self, *texts: str | None) -> None:
        self.texts = list(texts)
        self.asked: list[ConflictUnit] = []

    async def __call__(self, unit: ConflictUnit) -> Resolution | str:
        self.asked.append(unit)
        text = self.texts.pop(0) if self.texts else None
        return "nobody knows" if text is None else Resolution(path=unit.path, content=text)


async def union(unit: ConflictUnit) -> Resolution:
    return Resolution(path=unit.path, content=union_of(unit.base or "", unit.ours, unit.theirs))


def pull(head: str, name: str = "it") -> PullRequest:
    return PullRequest(
        id=name, title=f"Do {name}", body="", branch=f"ironworks/{name}", base="main", head=head
    )


async def land(
    shop: Workshop,
    tip: str,
    head: str,
    answers: Answers | None = None,
    *,
    known_failing: frozenset[str] = frozenset(),
    expected: frozenset[str] = frozenset(),
) -> Landed | Refused:
    integrator = Integrator(shop.depot, shop.suites())
    return await integrator.land(
        tip,
        pull(head),
        resolve=answers or Answers(),
        known_failing=known_failing,
        name="integrate",
        expected=expected,
    )


@pytest.mark.spec("MG-2", "MG-3", "MG-5")
async def test_real_branches_that_all_conflict_land_one_after_the_other(tmp_path: Path) -> None:
    async with workshop(tmp_path, BRANCHES["base"]) as shop:
        integrator = Integrator(shop.depot, shop.suites())
        tip, tests, asked = shop.base, 0, 0
        for name in ("validation", "health", "expiry"):
            head = shop.commit(BRANCHES["branches"][name])
            landed = await integrator.land(
                tip, pull(head, name), resolve=union, known_failing=frozenset(), name="integrate"
            )
            assert isinstance(landed, Landed), landed
            assert shop.depot.parents(landed.commit) == (tip, head)
            assert len(landed.run.passed) > tests
            assert landed.run.failing == frozenset()
            tip, tests = landed.commit, len(landed.run.passed)
            asked += landed.conflicts.agent
        assert asked > 0
        for path in shop.depot.files(tip):
            assert b"<<<<<<<" not in (shop.depot.read(tip, path) or b"")


@pytest.mark.spec("MG-5")
async def test_one_test_file_changed_twice_is_resolved_with_both_tests_in_it(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        answers = Answers(BOTH)
        landed = await land(shop, shop.commit(A), shop.commit(B), answers)
        assert isinstance(landed, Landed), landed
        assert landed.conflicts == Conflicts(agent=1)
        assert {test.rpartition("::")[2] for test in landed.run.passed} == {"test_f", "test_a", "test_b"}
        assert [unit.path for unit in answers.asked] == ["tests/test_m.py"]
        assert answers.asked[0].base == BASE["tests/test_m.py"]


@pytest.mark.spec("MG-2")
async def test_an_answer_that_loses_a_test_is_asked_for_again_with_the_reason(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        tip, head = shop.commit(A), shop.commit(B)
        answers = Answers(A["tests/test_m.py"], BOTH)
        assert isinstance(await land(shop, tip, head, answers), Landed)
        assert "test test_b is lost" in answers.asked[1].reason
        refused = await land(shop, tip, head, Answers("<<<<<<< a\n" + BOTH, B["tests/test_m.py"]))
        assert isinstance(refused, Refused)
        assert refused.reason == "conflict"
        assert "2 answers were refused, the last one: " in refused.detail
        assert "test test_a is lost" in refused.detail and "conflict mark" not in refused.detail


@pytest.mark.spec("MG-4")
async def test_what_nobody_resolves_is_evicted_as_a_conflict(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        tip = shop.commit(A)
        refused = await land(shop, tip, shop.commit(B))
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.suite_runs) == ("conflict", 0)
        assert refused.detail.startswith("tests/test_m.py: ") and refused.detail.endswith("; nobody knows")
        gone = await land(
            shop, shop.commit({"m.py": None}), shop.commit({"m.py": "def f():\n    return 2\n"})
        )
        assert isinstance(gone, Refused)
        assert gone.detail == "m.py: modify/delete"


@pytest.mark.spec("MG-4")
async def test_an_answer_about_another_file_is_named_as_that(tmp_path: Path) -> None:
    async def astray(unit: ConflictUnit) -> Resolution:
        return Resolution(path="m.py", content="")

    async with workshop(tmp_path, BASE) as shop:
        integrator, tip = Integrator(shop.depot, shop.suites()), shop.commit(A)
        refused = await integrator.land(
            tip, pull(shop.commit(B)), resolve=astray, known_failing=frozenset(), name="integrate"
        )
        assert isinstance(refused, Refused)
        assert refused.detail.endswith("; the resolver answered about 'm.py'")


@pytest.mark.spec("MG-1", "MG-2")
async def test_a_wrong_merge_that_git_calls_clean_is_handed_on(tmp_path: Path) -> None:
    source = "def f():\n    return 1\n\n\nX = 1\nY = 2\n\n\ndef g():\n    return 2\n"
    async with workshop(tmp_path, {**BASE, "m.py": source}) as shop:
        renamed = shop.commit({"m.py": source.replace("def g", "def h")})
        caller = shop.commit({"m.py": "def k():\n    return g() + 1\n\n\n" + source})
        answers = Answers(None)
        refused = await land(shop, renamed, caller, answers)
        assert isinstance(refused, Refused)
        assert "g is used and no longer there" in answers.asked[0].reason


@pytest.mark.spec("MG-3", "MG-4")
async def test_a_branch_with_which_the_suite_is_red_is_the_culprit(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        tip = shop.commit(
            {"m.py": "def f():\n    return 2 - 1 + 1\n", "tests/test_m.py": "from m import f\n"}
        )
        refused = await land(shop, tip, shop.commit({"tests/test_n.py": BASE["tests/test_m.py"]}))
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.suite_runs) == ("culprit", 2)
        assert "unit::tests.test_n::test_f fails" in refused.detail


@pytest.mark.spec("MG-3")
async def test_a_test_that_passed_on_a_side_and_does_not_run_on_the_result_is_missed(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        tip, head = shop.commit({"x": "1"}), shop.commit({"y": "1"})
        lost = frozenset({"unit::tests.test_m::test_gone"})
        refused = await land(shop, tip, head, expected=lost)
        assert isinstance(refused, Refused)
        assert "test_gone passed on one side and does not run here" in refused.detail
        landed = await land(shop, tip, head, expected=frozenset({"unit::tests.test_m::test_f"}))
        assert isinstance(landed, Landed)


@pytest.mark.spec("MG-3")
async def test_what_failed_before_anybody_worked_evicts_nobody(tmp_path: Path) -> None:
    old = "def test_old():\n    assert 0\n"
    async with workshop(tmp_path, {**BASE, "tests/test_old.py": old}) as shop:
        head = shop.commit({"x": "1"})
        assert isinstance(await land(shop, shop.base, head), Refused)
        known = frozenset({"unit::tests.test_old::test_old"})
        landed = await land(shop, shop.base, head, known_failing=known)
        assert isinstance(landed, Landed)


@pytest.mark.spec("MG-3")
async def test_a_failure_that_does_not_repeat_evicts_nobody(tmp_path: Path) -> None:
    bad, good = reporting("", "<failure/>", code=1).command, reporting("", code=0, first=1).command
    flaky = shell(f'case "$PYTEST_ADDOPTS" in *-k*) {good};; *) {bad};; esac')
    async with workshop(tmp_path, BASE) as shop:
        integrator = Integrator(shop.depot, shop.suites(flaky))
        head = shop.commit({"x": "1"})
        landed = await integrator.land(
            shop.base, pull(head), resolve=union, known_failing=frozenset(), name="integrate"
        )
        assert isinstance(landed, Landed)
        assert landed.suite_runs == 2
        assert landed.run.tests == {"unit::c::t0": "passed", "unit::c::t1": "passed"}


@pytest.mark.spec("MG-3")
async def test_an_unusable_suite_run_lands_nothing(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        integrator = Integrator(shop.depot, shop.suites(shell("exit 0 # {junit}")))
        head = shop.commit({"x": "1"})
        refused = await integrator.land(
            shop.base, pull(head), resolve=union, known_failing=frozenset(), name="integrate"
        )
        assert isinstance(refused, Refused)
        assert "no report" in refused.detail


async def test_landing_again_after_a_crash_makes_the_same_commit(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        tip, head = shop.commit(A), shop.commit({"y": "1"})
        first, second = [await land(shop, tip, head) for _ in range(2)]
        assert isinstance(first, Landed)
        assert isinstance(second, Landed)
        assert first.commit == second.commit


async def test_a_file_that_one_side_moved_and_the_other_edited_lands(tmp_path: Path) -> None:
    source = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(8))
    async with workshop(tmp_path, {**BASE, "lib/old.py": source}) as shop:
        moved = shop.commit({"lib/old.py": None, "lib/new.py": source})
        edited = shop.commit({"lib/old.py": source.replace("return 7", "return 70")})
        landed = await land(shop, moved, edited)
        assert isinstance(landed, Landed), landed
        assert landed.conflicts == Conflicts(git=1)
        assert b"return 70" in (shop.depot.read(landed.commit, "lib/new.py") or b"")
