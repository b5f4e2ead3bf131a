"""The suite runs a verdict rests on, and what repeating them says about tests that newly fail."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ironworks.core.handoffs import Baseline
from ironworks.git.depot import Depot
from ironworks.verify.candidate import Candidate, with_base_sources, with_base_tests
from ironworks.verify.comparison import newly_failing
from ironworks.verify.suite import SuiteRun, Suites

RERUNS = 3

Taking = Coroutine[Any, Any, tuple[Baseline, SuiteRun]]
"""The baseline in the making."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the runs showed."""

    base: SuiteRun
    run: SuiteRun
    own: SuiteRun
    """The base's own tests over the work; the same as `run` where no existing test changed."""
    without: SuiteRun | None
    """The work's tests over the base's sources, if asked for and there are any."""

    @property
    def problems(self) -> list[str]:
        """Why nothing can be said; each once."""
        told = {"on the base": self.base, "base's own tests on the work": self.own, "on the work": self.run}
        found = {run.problem: f"{where}, {run.problem}" for where, run in told.items() if run.problem}
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Suspects:
    """Newly failing tests after their reruns."""

    failing: frozenset[str] = frozenset()
    """Failed every time."""
    unsettled: frozenset[str] = frozenset()
    """Passed at least once here, and on the base always, or are new: the work is what made them flaky."""
    flaky: frozenset[str] = frozenset()
    """Passed at least once here, and failed at least once on the base."""


class Hearing:
    """Runs the suites for one verdict, and counts. `name` begins the names of its sandboxes."""

    def __init__(self, suites: Suites, depot: Depot, name: str) -> None:
        self._suites = suites
        self._depot = depot
        self._name = name
        self.runs = 0
        self.suite_s = 0.0
        self.cpu_s = 0.0

    async def gather(
        self, candidate: Candidate, take: Callable[[], Taking], *, prove: bool
    ) -> tuple[Baseline, Evidence]:
        """Every run that is needed, side by side; `take` gives the baseline."""
        own, without = await asyncio.to_thread(self._trees, candidate, prove=prove)
        try:
            async with asyncio.TaskGroup() as group:
                taking = group.create_task(take())
                running = group.create_task(self._run(candidate.commit, "work", canary=True))
                keeping = group.create_task(self._run(own, "own")) if own else None
                proving = group.create_task(self._run(without, "proof")) if without else None
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        baseline, base_run = taking.result()
        run = running.result()
        return baseline, Evidence(
            base=base_run,
            run=run,
            own=await self._steadied(own, keeping.result(), base_run) if own and keeping else run,
            without=proving.result() if proving else None,
        )

    def _trees(self, candidate: Candidate, *, prove: bool) -> tuple[str | None, str | None]:
        own = with_base_tests(self._depot, candidate) if candidate.touches_existing_tests else None
        return own, with_base_sources(self._depot, candidate) if prove else None

    async def _steadied(self, commit: str, run: SuiteRun, base: SuiteRun) -> SuiteRun:
        """`run` with what passes when repeated."""
        passed = frozenset() if run.problem else await self._passing(commit, "own", run.failing & base.passed)
        return run.model_copy(update={"tests": {**run.tests, **dict.fromkeys(passed, "passed")}})

    async def settle(self, candidate: Candidate, baseline: Baseline, evidence: Evidence) -> Suspects:
        """Repeat what newly fails on the work, and what passes then on the base too."""
        suspects = newly_failing(baseline, evidence.run)
        if evidence.problems:
            return Suspects(failing=suspects)
        passed = await self._passing(candidate.commit, "work", suspects)
        stable = passed
        for number in range(RERUNS):
            if known := stable & evidence.base.passed:
                again = await self._run(candidate.onto, f"base-again-{number}", only=known)
                stable -= frozenset() if again.problem else again.failing
        return Suspects(failing=suspects - passed, unsettled=stable, flaky=passed - stable)

    async def _passing(self, commit: str, label: str, suspects: frozenset[str]) -> frozenset[str]:
        """Those of the suspects that pass at least once when repeated."""
        passed: frozenset[str] = frozenset()
        for number in range(RERUNS):
            if left := suspects - passed:
                passed |= left & (await self._run(commit, f"{label}-again-{number}", only=left)).passed
        return passed

    async def _run(
        self, commit: str, label: str, *, canary: bool = False, only: frozenset[str] = frozenset()
    ) -> SuiteRun:
        run = await self._suites.run(commit, name=f"{self._name}-{label}", canary=canary, only=only)
        self.runs += 1
        self.suite_s += run.duration_s
        self.cpu_s += run.cpu_s
        return run
