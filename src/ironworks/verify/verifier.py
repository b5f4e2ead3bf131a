"""Judges work by running it. No model has a say, and what cannot be established is never passed."""

import asyncio
import time

from ironworks.core.handoffs import Baseline, FailToPass, ReviewReport, Verification
from ironworks.core.models import WITHOUT_NEW_TESTS, Finding, Issue, IssueKind
from ironworks.git.depot import Depot
from ironworks.verify.candidate import merge_onto
from ironworks.verify.comparison import fail_to_pass, gone
from ironworks.verify.evidence import Hearing
from ironworks.verify.inspection import Mandate, inspect
from ironworks.verify.judgement import findings_from
from ironworks.verify.reproduction import reproduce
from ironworks.verify.suite import SuiteRun, Suites


class Verifier:
    """Verdicts on work that grew from the base snapshot of `suites`.

    `bounds` and `protected` are the project's own globs. `known` spares a restarted process the baseline.
    """

    def __init__(
        self,
        suites: Suites,
        depot: Depot,
        *,
        bounds: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        known: tuple[Baseline, SuiteRun] | None = None,
    ) -> None:
        self._suites = suites
        self._depot = depot
        self._bounds = bounds
        self._protected = protected
        self._baselines = {known[0].commit: known} if known else {}
        self._taking = asyncio.Lock()

    async def baseline(self, commit: str | None = None) -> tuple[Baseline, SuiteRun]:
        """What the suites say of the base commit (or another tip); taken once.

        A test that fails is run again: only what fails twice counts as failing.
        """
        tip = commit or self._suites.base.commit
        async with self._taking:
            if tip not in self._baselines:
                self._baselines[tip] = await self._take(tip)
        return self._baselines[tip]

    async def _take(self, tip: str) -> tuple[Baseline, SuiteRun]:
        name = f"baseline-{tip[:16]}"
        run = await self._suites.run(tip, name=name, canary=True)
        if run.failing and not run.problem:
            again = await self._suites.run(tip, name=f"{name}-again", only=run.failing)
            lucky = again.passed & run.failing
            run = run.model_copy(update={"tests": {**run.tests, **dict.fromkeys(lucky, "passed")}})
        return Baseline(commit=tip, passed=len(run.passed), failing=tuple(sorted(run.failing))), run

    async def verify(
        self,
        work: str,
        *,
        issue: Issue,
        kind: IssueKind,
        scope: tuple[str, ...],
        name: str,
        onto: str | None = None,
    ) -> Verification:
        """Judge commit `work` merged onto the tip `onto` (default: the snapshot's commit).

        `name` begins the names of the sandboxes. SandboxError when the machine, not the work, is at fault.
        """
        started = time.monotonic()
        tip = onto or self._suites.base.commit
        candidate = await asyncio.to_thread(merge_onto, self._depot, work, tip, self._suites.runners)
        if isinstance(candidate, Finding):
            return Verification(verdict="failed", commit=work, onto=tip, findings=(candidate,))
        mandate = Mandate(issue, scope, self._bounds, self._protected)
        findings = await asyncio.to_thread(inspect, candidate, mandate)
        waived = f"an issue of kind {kind} need not bring one" if kind in WITHOUT_NEW_TESTS else ""
        hearing = Hearing(self._suites, self._depot, name)
        baseline, evidence = await hearing.gather(candidate, lambda: self.baseline(tip), prove=not waived)
        suspects = await hearing.settle(candidate, baseline, evidence)
        base, run = evidence.base, evidence.run
        proof = fail_to_pass(base, run, evidence.own, evidence.without, candidate.test_files)
        findings += findings_from(evidence, suspects, proof, waived, candidate, mandate)
        refused = any(finding.fatal for finding in findings)
        return Verification(
            verdict="unverifiable" if evidence.problems else "failed" if refused else "passed",
            commit=candidate.commit,
            onto=tip,
            tests=run.tests,
            baseline=baseline,
            regressions=tuple(sorted((suspects.failing & base.passed) | gone(base, run))),
            flaky=tuple(sorted(suspects.flaky | suspects.unsettled)),
            fail_to_pass=FailToPass(proven=tuple(sorted(proof.proven)), waived=waived),
            findings=tuple(sorted(findings, key=lambda finding: not finding.fatal)),
            suite_runs=hearing.runs,
            suite_s=hearing.suite_s,
            cpu_s=hearing.cpu_s,
            duration_s=time.monotonic() - started,
        )

    async def reproduce(self, commit: str, review: ReviewReport, *, name: str) -> tuple[Finding, ...]:
        """Run a review's reproductions on `commit`, the one reviewed. Only what really fails is fatal."""
        return await reproduce(self._suites, self._depot, commit, review, name)
