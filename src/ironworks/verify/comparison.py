"""Compares test results: what is gone, what newly fails, which tests prove that a change does something."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ironworks.core.handoffs import Baseline
from ironworks.core.models import TestOutcome
from ironworks.verify.suite import SuiteRun

_COMPONENTS = re.compile(r"[./\\:> ]+")


def stem(test: str) -> str:
    """The id without the values of its parameters."""
    return re.sub(r"\[.*\]$", "", test, flags=re.DOTALL)


def belongs(test: str, path: str) -> bool:
    """Whether the test's id says that it comes from the file `path`."""
    _, where, name = (*test.split("::", 2), "", "")[:3]
    return posixpath.basename(path).split(".")[0] in _COMPONENTS.split(where or name)


def newly_failing(baseline: Baseline, run: SuiteRun) -> frozenset[str]:
    """Tests that fail or error here and did not on the base, new ones included."""
    return run.failing - set(baseline.failing)


def gone(base: SuiteRun, run: SuiteRun) -> frozenset[str]:
    """Tests that passed on the base and did not run here.

    A parametrised one is not gone while others of its function pass, since its ids hold its values.
    """
    kept = {stem(test) for test in run.passed}
    missing = base.passed - run.tests.keys()
    return frozenset(test for test in missing if stem(test) == test or stem(test) not in kept)


def newly_skipped(base: SuiteRun, run: SuiteRun) -> frozenset[str]:
    return base.passed & run.having("skipped")


@dataclass(frozen=True, slots=True)
class Proof:
    """Tests that pass with the change, not without it; `weak` if only since something cannot be imported."""

    proven: frozenset[str]
    weak: bool


def fail_to_pass(
    base: SuiteRun, run: SuiteRun, own: SuiteRun, without: SuiteRun | None, test_files: Iterable[str]
) -> Proof:
    """What shows that the change does something.

    `own` is the run of the base's own tests over the work, `without` that of the work's `test_files` over the
    base's sources. A test of the base that failed and passes now, as the base has it, is a proof by itself.
    """
    fixed = base.failing & run.passed & own.passed
    if without is None:
        return Proof(fixed, weak=False)
    files = tuple(test_files)
    fresh = {
        test for test in run.passed if test not in base.passed or any(belongs(test, path) for path in files)
    }
    failed = frozenset(test for test in fresh if _bad(without.tests.get(test)))
    unimportable = {test for test in without.failing if test not in run.tests and test not in base.tests}
    missing = frozenset(
        test
        for test in fresh - without.tests.keys() - base.passed
        if without.problem or any(_explains(error, test, files) for error in unimportable)
    )
    return Proof(fixed | failed | missing, weak=not (fixed | failed))


def _bad(outcome: TestOutcome | None) -> bool:
    return outcome in {"failed", "error"}


def _explains(error: str, test: str, files: tuple[str, ...]) -> bool:
    """Whether a failure to collect, told under a module's name, is why a test of that module did not run.

    Node's runner tells it under the file's path instead, and never says which file a test comes from.
    """
    if any(error.endswith(("/" + path, "::" + path)) for path in files):
        return True
    module = _COMPONENTS.split(error.partition("::")[2].strip(":"))[-1]
    return module in _COMPONENTS.split(test.partition("::")[2])
