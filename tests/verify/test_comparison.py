"""What is gone, what is new, and what is proved, from results alone."""

from ironworks.core.handoffs import Baseline
from ironworks.core.models import TestOutcome
from ironworks.verify.comparison import belongs, fail_to_pass, gone, newly_failing, newly_skipped
from ironworks.verify.suite import SuiteRun


def run(problem: str = "", **tests: TestOutcome) -> SuiteRun:
    """Results of `u::tests.test_m::NAME`."""
    return SuiteRun(tests={f"u::tests.test_m::{name}": said for name, said in tests.items()}, problem=problem)


def ids(*names: str) -> frozenset[str]:
    return frozenset(f"u::tests.test_m::{name}" for name in names)


def test_what_passed_and_does_not_run_is_gone_and_what_is_skipped_is_skipped() -> None:
    base = run(a="passed", b="passed", c="failed", d="passed")
    now = run(a="passed", b="skipped")
    assert gone(base, now) == ids("d")
    assert newly_skipped(base, now) == ids("b")


def test_a_parametrised_test_is_gone_only_with_the_last_of_its_values() -> None:
    base = SuiteRun(tests={"u::m::t[1]": "passed", "u::m::t[2]": "passed"})
    assert gone(base, SuiteRun(tests={"u::m::t[3]": "passed"})) == frozenset()
    assert gone(base, SuiteRun(tests={"u::m::t[3]": "failed"})) == base.passed
    assert gone(base, SuiteRun(tests={"u::m::other": "passed"})) == base.passed


def test_newly_failing_are_all_but_those_that_failed_before() -> None:
    baseline = Baseline(commit="a" * 40, passed=1, failing=tuple(ids("old")))
    now = run(old="failed", b="error", new="failed", c="passed")
    assert newly_failing(baseline, now) == ids("b", "new")


def test_a_test_belongs_to_the_file_it_is_named_after() -> None:
    assert belongs("u::tests.test_m::t", "tests/test_m.py")
    assert belongs("u::tests.test_m.TestX::t", "tests/test_m.py")
    assert belongs("u::::tests.test_m", "tests/test_m.py")
    assert belongs("u::src/a.test.ts::adds", "src/a.test.ts")
    assert not belongs("u::tests.test_m2::t", "tests/test_m.py")


def test_a_proof_fails_without_the_change_and_passes_with_it() -> None:
    base, now = run(a="passed"), run(a="passed", new="passed", weak="passed", bad="failed")
    without = run(a="passed", new="failed", weak="passed", bad="failed")
    proof = fail_to_pass(base, now, now, without, ["tests/test_new.py"])
    assert (proof.proven, proof.weak) == (ids("new"), False)


def test_a_test_of_a_file_the_work_leaves_alone_proves_nothing_by_failing_once() -> None:
    base, now, without = run(a="passed"), run(a="passed"), run(a="failed")
    assert fail_to_pass(base, now, now, without, ["tests/test_x.py"]).proven == frozenset()
    assert fail_to_pass(base, now, now, without, ["tests/test_m.py"]).proven == ids("a")


def test_an_old_failure_that_passes_only_as_the_work_rewrote_it_is_no_proof() -> None:
    base, now, without = run(old="failed"), run(old="passed"), run(old="passed")
    own = run(old="failed")
    assert fail_to_pass(base, now, own, without, ["tests/test_m.py"]).proven == frozenset()
    assert fail_to_pass(base, now, now, None, []).proven == ids("old")


def test_what_cannot_be_imported_without_the_change_is_a_weak_proof() -> None:
    base, now = run(a="passed"), run(a="passed", new="passed")
    broken = SuiteRun(tests={"u::::tests.test_m": "error"})
    proof = fail_to_pass(base, now, now, broken, ["tests/test_m.py"])
    assert (proof.proven, proof.weak) == (ids("new"), True)
    elsewhere = SuiteRun(tests={"u::::tests.test_other": "error"})
    assert fail_to_pass(base, now, now, elsewhere, ["tests/test_m.py"]).proven == frozenset()
    assert fail_to_pass(base, now, now, run("no report"), ["tests/test_m.py"]).weak


def test_a_file_that_node_cannot_load_without_the_change_is_a_weak_proof_of_its_tests() -> None:
    base = SuiteRun(tests={"u::test::adds": "passed"})
    now = SuiteRun(tests={"u::test::adds": "passed", "u::test::subtracts": "passed"})
    without = SuiteRun(tests={"u::test::adds": "passed", "u::test::/somewhere/r/test/sub.test.js": "failed"})
    proof = fail_to_pass(base, now, now, without, ["test/sub.test.js"])
    assert (proof.proven, proof.weak) == (frozenset({"u::test::subtracts"}), True)
    assert not fail_to_pass(base, now, now, without, ["test/other.test.js"]).proven
