"""Verdicts where the base is not spotless, tests are flaky, or nothing can be established."""

import asyncio
from pathlib import Path

import pytest
from tests.verify.workshop import ISSUE, reporting, shell, workshop

from ironworks.core.handoffs import Verification
from ironworks.core.models import Issue, IssueKind
from ironworks.git.tree import Blob
from ironworks.verify.candidate import MOST_FILES
from ironworks.verify.verifier import Verifier

BASE = {
    "calc.py": "def add(a, b):\n    if a < 0:\n        return a - b\n    return a + b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
OLD = "def test_old():\n    assert 'broken' == ''\n"
FIX = "def add(a, b):\n    return a + b\n"
NEW = {"tests/test_new.py": "from calc import add\n\n\ndef test_new():\n    assert add(-1, 2) == 1\n"}
HONEST = {"calc.py": FIX, **NEW}


async def judge(
    verifier: Verifier,
    work: str,
    *,
    issue: Issue = ISSUE,
    kind: IssueKind = "bug",
    scope: tuple[str, ...] = (),
    onto: str | None = None,
) -> Verification:
    return await verifier.verify(work, issue=issue, kind=kind, scope=scope, name="judge", onto=onto)


def told(verification: Verification, *, fatal: bool = True) -> set[str]:
    return {finding.code for finding in verification.findings if finding.fatal == fatal}


@pytest.mark.spec("VF-7")
async def test_a_test_that_failed_before_is_nobodys_fault_and_nobodys_proof(tmp_path: Path) -> None:
    async with workshop(tmp_path, {**BASE, "tests/test_old.py": OLD}) as shop:
        verifier = shop.verifier()
        judged = await judge(verifier, shop.commit(HONEST))
        assert judged.verdict == "passed"
        assert judged.baseline is not None
        assert judged.baseline.failing == ("unit::tests.test_old::test_old",)
        assert judged.tests["unit::tests.test_old::test_old"] == "failed"
        silenced = {"calc.py": FIX, "tests/test_old.py": OLD.replace("''", "'broken'")}
        assert told(await judge(verifier, shop.commit(silenced))) == {"no-fail-to-pass"}


@pytest.mark.spec("VF-7")
async def test_making_an_old_failing_test_pass_is_a_proof(tmp_path: Path) -> None:
    old = "from calc import add\n\n\ndef test_old():\n    assert add(-1, 2) == 1\n"
    async with workshop(tmp_path, {**BASE, "tests/test_old.py": old}) as shop:
        judged = await judge(shop.verifier(), shop.commit({"calc.py": FIX}))
        assert judged.verdict == "passed"
        assert judged.fail_to_pass.proven == ("unit::tests.test_old::test_old",)


FULL = {"good": reporting("", "", code=0).command, "bad": reporting("", "<failure/>", code=1).command}
PART = {
    "good": reporting("", code=0, first=1).command,
    "bad": reporting("<failure/>", code=1, first=1).command,
}


def changing(*, work: tuple[str, str], base: tuple[str, str]) -> str:
    """A command whose second test is good or bad in the whole run and when repeated alone."""

    def case(whole: str, alone: str) -> str:
        return f'case "$PYTEST_ADDOPTS" in *-k*) {PART[alone]};; *) {FULL[whole]};; esac'

    return f"if test -e worked; then {case(*work)}; else {case(*base)}; fi"


@pytest.mark.slow
@pytest.mark.spec("VF-8")
@pytest.mark.parametrize(
    ("work", "base", "fatal", "noted"),
    [
        (("bad", "bad"), ("good", "good"), {"regression"}, set()),
        (("bad", "good"), ("good", "good"), {"made-flaky"}, set()),
        (("bad", "good"), ("good", "bad"), set(), {"flaky"}),
        (("bad", "good"), ("bad", "good"), {"made-flaky"}, set()),
        (("bad", "bad"), ("bad", "good"), {"regression"}, set()),
        (("bad", "bad"), ("bad", "bad"), set(), set()),
        (("good", "good"), ("bad", "good"), set(), set()),
    ],
)
async def test_a_failure_is_repeated_on_both_sides_before_it_counts(
    work: tuple[str, str], base: tuple[str, str], fatal: set[str], noted: set[str], tmp_path: Path
) -> None:
    async with workshop(tmp_path, BASE) as shop:
        verifier = shop.verifier(shell(changing(work=work, base=base)))
        judged = await judge(verifier, shop.commit({"worked": "1"}), kind="refactor")
        assert told(judged) == fatal
        beside = {
            "canary-unavailable",
            "canary",
            "test-configuration",
        }  # the command names a file of the work
        assert told(judged, fatal=False) - beside == noted
        assert judged.verdict == ("failed" if fatal else "passed")
        flaky = ("unit::c::t1",) if "made-flaky" in fatal or noted else ()
        assert judged.flaky == flaky


@pytest.mark.slow
@pytest.mark.spec("VF-9")
@pytest.mark.parametrize(
    "command",
    [
        "test ! -e worked || sleep 60; " + FULL["good"],
        "test ! -e worked || exit 0; " + FULL["good"],
        "test ! -e worked || exit 7; " + FULL["good"],
        "if test -e worked; then " + reporting("", code=3).command + "; fi; " + FULL["good"],
        "test -e worked || sleep 60; " + FULL["good"],
        "test -e worked || exit 1; " + FULL["good"],
    ],
)
async def test_what_cannot_be_established_is_not_passed(command: str, tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        verifier = shop.verifier(shell(command, timeout_s=1.5))
        judged = await judge(verifier, shop.commit({"worked": "1"}), kind="chore")
        assert judged.verdict == "unverifiable"
        assert "unverifiable" in told(judged)


@pytest.mark.spec("VF-10")
async def test_work_is_judged_on_the_tip_it_is_for(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        verifier = shop.verifier()
        work = shop.commit(HONEST)
        moved = shop.commit({"other.py": "x = 1\n", "tests/test_other.py": "def test_other():\n    pass\n"})
        judged = await judge(verifier, work, onto=moved)
        assert judged.verdict == "passed"
        assert judged.onto == moved
        assert shop.depot.parents(judged.commit) == (moved, work)
        assert "unit::tests.test_other::test_other" in judged.tests
        clash = shop.commit({"calc.py": BASE["calc.py"].replace("a - b", "a * b")})
        refused = await judge(verifier, work, onto=clash)
        assert (refused.verdict, told(refused), refused.suite_runs) == ("failed", {"conflict"}, 0)
        assert "calc.py" in refused.findings[0].message


@pytest.mark.spec("VF-10")
async def test_work_that_is_not_there_or_not_of_this_project_is_refused(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        alien = shop.depot.commit(shop.depot.tree_of(shop.base), (), "alien")
        for work, code in (("0" * 40, "missing-commit"), (alien, "unrelated"), (shop.base, "empty")):
            refused = await judge(shop.verifier(), work)
            assert (refused.verdict, told(refused)) == ("failed", {code})


async def test_a_kind_without_new_tests_needs_none_and_says_so(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        work = shop.commit({"calc.py": BASE["calc.py"] + "\n\n# tidy\n"})
        assert told(await judge(shop.verifier(), work)) == {"no-fail-to-pass"}
        judged = await judge(shop.verifier(), work, kind="refactor")
        assert judged.verdict == "passed"
        assert "refactor" in judged.fail_to_pass.waived
        assert judged.suite_runs == 1


async def test_new_code_whose_tests_cannot_be_imported_without_it_is_a_weak_proof(
    tmp_path: Path,
) -> None:
    test = "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 1) == 2\n"
    async with workshop(tmp_path, BASE) as shop:
        work = shop.commit(
            {"calc.py": BASE["calc.py"] + "\n\ndef sub(a, b):\n    return a - b\n", "tests/test_sub.py": test}
        )
        judged = await judge(shop.verifier(), work, kind="feature")
        assert judged.verdict == "passed"
        assert judged.fail_to_pass.proven == ("unit::tests.test_sub::test_sub",)
        assert told(judged, fatal=False) == {"weak-proof"}


@pytest.mark.slow
@pytest.mark.spec("VF-12")
async def test_tests_and_files_that_the_issue_names_may_change_and_are_shown(tmp_path: Path) -> None:
    base = {**BASE, "legacy.py": "x = 1\n"}
    changed = {
        "calc.py": "def add(a, b):\n    return [a + b]\n",
        "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == [3]\n",
        "legacy.py": None,
    }
    async with workshop(tmp_path, base) as shop:
        verifier, work = shop.verifier(), shop.commit(changed)
        assert told(await judge(verifier, work)) == {"base-test", "deleted-file"}
        body = "add() returns a list, so test_add changes. Also remove `legacy.py`."
        judged = await judge(verifier, work, issue=Issue(id="list", title="Return a list", body=body))
        assert judged.verdict == "passed"
        assert told(judged, fatal=False) == {"base-test-named"}
        scoped = await judge(verifier, work, scope=("calc.py", "tests/test_calc.py", "legacy.py"))
        assert scoped.verdict == "passed"


@pytest.mark.slow
async def test_what_lies_outside_the_scope_is_refused_but_new_tests_lie_inside(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        verifier, work = shop.verifier(), shop.commit({**HONEST, "setup.txt": "x"})
        assert told(await judge(verifier, work, scope=("calc.py",))) == {"out-of-scope"}
        assert (await judge(verifier, work, scope=("calc.py", "*.txt"))).verdict == "passed"
        bound = Verifier(shop.suites(), shop.depot, bounds=("src/**",))
        judged = await judge(bound, work, scope=("**",))
        assert {finding.path for finding in judged.findings if finding.code == "out-of-scope"} == {
            "calc.py",
            "setup.txt",
            "tests/test_new.py",
        }


async def test_verifications_side_by_side_share_one_baseline(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        verifier = shop.verifier()
        works = [shop.commit({**HONEST, "n.txt": str(n)}) for n in range(3)]
        judged = await asyncio.gather(
            *(
                verifier.verify(work, issue=ISSUE, kind="bug", scope=(), name=f"judge-{n}")
                for n, work in enumerate(works)
            )
        )
        assert [(one.verdict, one.suite_runs) for one in judged] == [("passed", 2)] * 3
        baseline, run = await verifier.baseline()
        told_again = Verifier(shop.suites(shell("exit 1")), shop.depot, known=(baseline, run))
        assert await told_again.baseline() == (baseline, run)


@pytest.mark.spec("VF-4")
async def test_where_no_canary_can_be_planted_that_is_noted(tmp_path: Path) -> None:
    async with workshop(tmp_path, {"run": "x"}) as shop:
        judged = await judge(shop.verifier(reporting("", code=0)), shop.commit({"a": "b"}), kind="docs")
        assert judged.verdict == "passed"
        assert told(judged, fatal=False) == {"canary-unavailable"}


@pytest.mark.spec("VF-13")
async def test_files_of_any_name_and_content_are_judged(tmp_path: Path) -> None:
    odd: dict[str, str | bytes | None] = {
        "-rf": "x",
        "a\nb.py": "def (\n",
        "spaces and ünïcode 🦀.py": "x = 1\n",
        "surrogate\udcff": b"\xff\xfe",
        "big.bin": b"\0" * 6_000_000,
        "tests/test_\udcff.txt": "x",
    }
    async with workshop(tmp_path, BASE) as shop:
        verifier, work = shop.verifier(), shop.commit({**HONEST, **odd})
        judged = await judge(verifier, work)
        assert judged.verdict == "passed"
        assert Verification.model_validate_json(judged.model_dump_json()) == judged
        judged = await judge(verifier, work, scope=("calc.py",))
        assert {finding.path for finding in judged.findings} == {
            "-rf",
            "a\\nb.py",
            "spaces and ünïcode 🦀.py",
            "surrogate\\udcff",
            "big.bin",
        }
        assert Verification.model_validate_json(judged.model_dump_json()) == judged


@pytest.mark.slow
@pytest.mark.spec("VF-13")
@pytest.mark.parametrize("target", ["/etc", "/nowhere", "tests", ".", ".git"])
async def test_a_test_folder_that_became_a_link_is_refused(target: str, tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        changes = {"tests/test_calc.py": None, "tests": Blob(target.encode(), "120000")}
        work = shop.depot.commit(shop.depot.write_tree(shop.base, changes), (shop.base,), "link")
        judged = await judge(shop.verifier(), work)
        assert judged.verdict in {"failed", "unverifiable"}
        assert {"gone-test", "deleted-file"} & told(judged) or "unverifiable" in told(judged)


@pytest.mark.slow
@pytest.mark.spec("VF-13")
async def test_work_of_too_many_files_is_refused_without_a_run(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        refused = await judge(shop.verifier(), shop.commit({f"n/{n}": "x" for n in range(MOST_FILES + 1)}))
        assert (told(refused), refused.suite_runs) == ({"too-large"}, 0)


async def test_a_refused_file_makes_a_run_unusable_and_not_the_factory(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        run = await shop.suites().run(shop.base, name="run", files={"calc.py/below": b""})
        assert "cannot write" in run.problem
        assert not await shop.backend.has_disk("run")
