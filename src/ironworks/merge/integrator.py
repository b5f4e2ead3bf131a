"""Puts one approved pull request on top of what has landed: all of both sides, suite green, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ironworks.core.crash import crash_point
from ironworks.core.errors import RefusedError
from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import Conflicts, Resolution
from ironworks.core.models import Model, PullRequest, Sha
from ironworks.core.states import EvictReason
from ironworks.git.depot import Depot
from ironworks.merge.proof import proof
from ironworks.merge.union import ConflictUnit, unite, with_resolutions
from ironworks.verify.suite import SuiteRun, Suites

__all__ = ["ConflictUnit", "Integrator", "Landed", "Refused", "Resolver"]

RESOLUTION_TRIES = 2
MOST_NAMED = 20

Resolver = Callable[[ConflictUnit], Awaitable[Resolution | str]]
"""Asks for the merged text of one file; a text says why there is none. A second call says what was wrong with
the first answer."""


class Landed(Model):
    """The merge is good: `commit` has both parents. Moving the branch there is the caller's."""

    commit: Sha
    run: SuiteRun
    conflicts: Conflicts
    suite_runs: int


class Refused(Model):
    """The merge is no good, and nothing of it is left."""

    reason: EvictReason
    detail: str
    conflicts: Conflicts = Conflicts()
    suite_runs: int = 0


class Unresolved(Exception):
    """Ends an attempt at a merge; never leaves this module."""


class Integrator:
    """Merges pull requests one at a time. Moves no ref."""

    def __init__(self, depot: Depot, suites: Suites) -> None:
        self._depot = depot
        self._suites = suites
        self._passed: dict[str, frozenset[str]] = {}

    async def land(
        self,
        tip: str,
        pull: PullRequest,
        *,
        resolve: Resolver,
        known_failing: frozenset[str],
        name: str,
        expected: frozenset[str] = frozenset(),
    ) -> Landed | Refused:
        """Merge `pull.head` onto `tip` and run the suites on the result.

        `expected`: ids of tests that passed on either side and must pass on the result; what passed on a tip
        that this integrator made is always among them. `name` begins the names of the sandboxes. SandboxError
        when the machine, not the change, is at fault.
        """
        try:
            tree, conflicts = await self._merge(tip, pull.head, resolve)
        except Unresolved as error:
            return Refused(reason="conflict", detail=str(error))
        commit = await asyncio.to_thread(
            self._depot.commit, tree, (tip, pull.head), f"Merge {pull.id}: {pull.title}"
        )
        crash_point("integrate.after_merge")
        run = await self._suites.run(commit, name=name)
        wanted = (expected | self._passed.get(tip, frozenset())) - known_failing
        runs = 1
        if _red(run, wanted, known_failing):
            runs = 2
            run = await self._repeat(commit, run, name)
        if why := _red(run, wanted, known_failing):
            return Refused(reason="culprit", detail=why, conflicts=conflicts, suite_runs=runs)
        self._passed[commit] = run.passed
        return Landed(commit=commit, run=run, conflicts=conflicts, suite_runs=runs)

    async def _merge(self, tip: str, head: str, resolve: Resolver) -> tuple[str, Conflicts]:
        try:
            union = await asyncio.to_thread(unite, self._depot, tip, head)
        except RefusedError as error:
            raise Unresolved(str(error)) from error
        if union.hopeless:
            raise Unresolved("; ".join(union.hopeless[:MOST_NAMED]))
        resolved = {unit.path: await _resolved(unit, resolve) for unit in union.units}
        tree = await asyncio.to_thread(with_resolutions, self._depot, union, resolved)
        return tree, Conflicts(git=union.proved, agent=len(resolved))

    async def _repeat(self, commit: str, run: SuiteRun, name: str) -> SuiteRun:
        """Once more what failed, or everything where the run was unusable: a flaky test evicts nobody."""
        only = frozenset() if run.problem else run.failing
        again = await self._suites.run(commit, name=f"{name}-again", only=only)
        if run.problem or again.problem:
            return again if run.problem else run
        lucky = again.passed & run.failing
        return run.model_copy(update={"tests": {**run.tests, **dict.fromkeys(lucky, "passed")}})


async def _resolved(unit: ConflictUnit, resolve: Resolver) -> str:
    """The proved text of one file."""
    asked, why = unit, ""
    for _ in range(RESOLUTION_TRIES):
        answer = await resolve(asked)
        if isinstance(answer, str):
            raise Unresolved(f"{unit.path}: {asked.reason}; {answer}")
        if answer.path != unit.path:
            raise Unresolved(
                f"{unit.path}: {asked.reason}; the resolver answered about {answer.path[:200]!r}"
            )
        base = None if unit.base is None else unit.base.encode()
        result = answer.content.encode("utf-8", "surrogatepass")
        findings = proof(unit.path, base, unit.ours.encode(), unit.theirs.encode(), result)
        wrong = [finding.message for finding in findings if finding.fatal]
        if not wrong:
            return answer.content
        why = "; ".join(wrong[:MOST_NAMED])
        asked = replace(unit, reason=f"{unit.reason}; a first answer was refused: {why}")
    raise Unresolved(
        f"{unit.path}: {unit.reason}; {RESOLUTION_TRIES} answers were refused, the last one: {why}"
    )


def _red(run: SuiteRun, wanted: frozenset[str], known_failing: frozenset[str]) -> str:
    """What is wrong with the suites on the merged commit; empty if nothing is."""
    if run.problem:
        return run.problem
    failing = run.failing - known_failing
    missing = wanted - run.passed - failing
    told = [
        f"{test} fails: {excerpt(run.messages.get(test, ''), 300)}" for test in sorted(failing)[:MOST_NAMED]
    ]
    told += [f"{test} passed on one side and does not run here" for test in sorted(missing)[:MOST_NAMED]]
    return "\n".join(told)
