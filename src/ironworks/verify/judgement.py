"""Turns evidence into findings: which of it is fatal, and how it is told to people and workers."""

from collections.abc import Iterable, Iterator

from ironworks.core.models import Finding
from ironworks.verify.candidate import Candidate
from ironworks.verify.comparison import Proof, belongs, gone, newly_skipped, stem
from ironworks.verify.evidence import Evidence, Suspects
from ironworks.verify.inspection import Mandate
from ironworks.verify.path import mentions

MOST_NAMED = 50


def findings_from(
    evidence: Evidence, suspects: Suspects, proof: Proof, waived: str, candidate: Candidate, mandate: Mandate
) -> Iterator[Finding]:
    """Everything the runs say against the work, or for a reviewer's attention."""
    for problem in evidence.problems:
        yield Finding(code="unverifiable", message=problem, fatal=True, detail=evidence.run.log[-2000:])
    yield from _canaries(evidence)
    yield from _failures(evidence, suspects)
    if not evidence.problems:
        yield from _losses(evidence, candidate, mandate)
        yield from _proof(evidence, proof, waived)


def _canaries(evidence: Evidence) -> Iterator[Finding]:
    for suite, state in evidence.run.canaries.items():
        at_base = evidence.base.canaries.get(suite)
        if state == "lied":
            yield Finding(code="canary", message=f"suite {suite} misreports a known test", fatal=True)
        elif state == "absent" and at_base == "sound":
            message = f"suite {suite} no longer collects a test put beside the base's own"
            yield Finding(code="canary", message=message, fatal=True)
        elif state != "sound":
            why = (
                f"suite {suite} leaves out a test that is put beside its own"
                if state == "absent"
                else f"suite {suite} is neither pytest's nor node's, or runs chosen tests only"
            )
            message = f"{why}: nobody checked with tests of known outcome that it tells the truth"
            yield Finding(code="canary-unavailable", message=message, fatal=False)


def _failures(evidence: Evidence, suspects: Suspects) -> Iterator[Finding]:
    messages, base = evidence.run.messages, evidence.base.passed
    regressions = "passes on the base and fails here"
    yield from _each("regression", regressions, suspects.failing & base, fatal=True, details=messages)
    failing = "fails, and is no test that failed on the base"
    yield from _each("failing-test", failing, suspects.failing - base, fatal=True, details=messages)
    unsettled = "fails only sometimes here, and never did on the base"
    yield from _each("made-flaky", unsettled, suspects.unsettled, fatal=True, details=messages)
    flaky = "fails only sometimes, here and on the base"
    yield from _each("flaky", flaky, suspects.flaky, fatal=False)


def _losses(evidence: Evidence, candidate: Candidate, mandate: Mandate) -> Iterator[Finding]:
    """Tests of the base that are gone, skipped, or fail as the base has them. What the issue names may."""
    lost = {
        "gone-test": ("passes on the base and is gone", gone(evidence.base, evidence.run)),
        "skipped-test": (
            "passes on the base and is skipped here",
            newly_skipped(evidence.base, evidence.run),
        ),
        "base-test": ("fails over this work, as the base has it", _broken(evidence)),
    }
    paths = [file.path for file in candidate.files if file.concerns_tests and mandate.names(file.path)]
    for code, (message, tests) in lost.items():
        excused = frozenset(
            test
            for test in tests
            if mentions(mandate.text, stem(test).rpartition("::")[2]) or any(belongs(test, p) for p in paths)
        )
        yield from _each(code, message, tests - excused, fatal=True, details=evidence.own.messages)
        yield from _each(f"{code}-named", f"{message}; the issue names it", excused, fatal=False)


def _broken(evidence: Evidence) -> frozenset[str]:
    if evidence.own is evidence.run:
        return frozenset()
    base, own = evidence.base, evidence.own
    return (gone(base, own) | newly_skipped(base, own) | (base.passed & own.failing)) - evidence.run.failing


def _proof(evidence: Evidence, proof: Proof, waived: str) -> Iterator[Finding]:
    if waived:
        return
    if not proof.proven:
        new = len(evidence.run.passed - evidence.base.passed)
        message = (
            f"none of the {new} new tests fails without the change"
            if new
            else "no new test shows that the change does something"
        )
        yield Finding(code="no-fail-to-pass", message=message, fatal=True)
    elif proof.weak:
        message = "without the change the new tests fail only because something is missing to import"
        yield Finding(code="weak-proof", message=message, fatal=False)


def _each(
    code: str, message: str, tests: Iterable[str], *, fatal: bool, details: dict[str, str] | None = None
) -> Iterator[Finding]:
    named = sorted(tests)
    for test in named[:MOST_NAMED]:
        detail = (details or {}).get(test, "")
        yield Finding(code=code, message=f"{test} {message}", fatal=fatal, test=test, detail=detail)
    if len(named) > MOST_NAMED:
        yield Finding(code=code, message=f"and {len(named) - MOST_NAMED} more: {message}", fatal=fatal)
