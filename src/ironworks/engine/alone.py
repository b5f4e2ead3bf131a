"""Single stations on any branch: verify, review, integrate, without a backlog and without a run."""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Sequence

from ironworks.core.errors import BusyError, MissingError
from ironworks.core.handoffs import Baseline, Conflicts, Integration, TriageReport, Verification
from ironworks.core.models import Issue, IssueKind, PullRequest
from ironworks.core.policy import INTEGRATION_BRANCH
from ironworks.core.report import Grade
from ironworks.engine import bench
from ironworks.engine.bench import grade
from ironworks.engine.floor import Floor, Parts
from ironworks.engine.integrate import land_branch, lease, not_in_use, publish
from ironworks.engine.line import Line
from ironworks.engine.review import Judgement, review
from ironworks.engine.work import Brief

COUNTS = ("git", "structural", "agent")


class Alone:
    """The stations of a factory that has no run. Nothing is recorded but what they cost."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._floor = Floor(parts, recording=False)

    async def verify(self, branch: str, *, kind: IssueKind = "feature") -> Verification:
        """The verdict on `branch`, merged onto the base branch."""
        async with self._open():
            line, commit = await self._line(branch)
            return await self._verify(line, commit, kind)

    async def review(self, branch: str, *, kind: IssueKind = "feature") -> Judgement:
        """A judgement on `branch` by a reviewer told what verification found. Parked when it fails."""
        async with self._open():
            line, commit = await self._line(branch)
            verification = await self._verify(line, commit, kind)
            brief = Brief(triage=TriageReport(decision="build", kind=kind), verification=verification)
            return await review(line, brief, 1)

    async def integrate(self, branches: Sequence[str]) -> Integration:
        """Merge each branch in turn onto the integration branch, suite after each; the culprits stay out.

        Pull requests tell it: one for each branch, and the integration's. Parked while the branch is in use.
        """
        async with self._open():
            await bench.take_baseline(self._floor)
            whole = Integration(branch=INTEGRATION_BRANCH, commit=self._floor.bench.base.commit)
            for branch in branches:
                line, commit = await self._line(branch)
                async with self._claimed(line.id), lease(line):
                    await not_in_use(line)
                    pull = self._pull(line, branch, commit)
                    part = await land_branch(line, pull)
                    await publish(line, pull, part)
                whole = _joined(whole, part)
            return whole

    async def baseline(self) -> Baseline:
        """What passes and fails on the base branch. ConfigError says why that cannot be found out."""
        async with self._open():
            await bench.take_baseline(self._floor)
            return await self._floor.baseline()

    async def grade(self, revisions: Sequence[str]) -> list[Grade]:
        """What the hidden suite says of each revision; of the base branch if none is named."""
        async with self._open():
            grades = []
            for revision in revisions or [self._floor.base_branch]:
                grades.append(await grade(self._floor, await self._commit(revision)))
            return grades

    async def _commit(self, revision: str) -> str:
        """The commit that a branch, or any revision the depot knows, names."""
        try:
            return await asyncio.to_thread(self.parts.depot.sync, revision)
        except MissingError:
            commit = await asyncio.to_thread(self.parts.depot.resolve, revision)
            if commit is None:
                raise
            return commit

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        parts, floor = self.parts, self._floor
        floor.base_branch = parts.settings.project.base or await asyncio.to_thread(parts.depot.current_branch)
        tip = await asyncio.to_thread(parts.depot.sync, floor.base_branch)
        floor.bench = await bench.set_up(floor, tip)
        heartbeat = asyncio.create_task(floor.heartbeat())
        try:
            yield
        finally:
            heartbeat.cancel()

    async def _line(self, branch: str) -> tuple[Line, str]:
        commit = await asyncio.to_thread(self.parts.depot.sync, branch)
        slug = re.sub(r"[^a-z0-9]+", "-", branch.lower()).strip("-")[:40]
        mark = hashlib.sha256(branch.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        issue = Issue(id=f"{slug}-{mark}".strip("-"), title=f"branch {branch}", source=branch)
        return Line(self._floor, issue, 1), commit

    async def _verify(self, line: Line, commit: str, kind: IssueKind) -> Verification:
        name = line.sandbox("verify")
        verifier = self._floor.bench.verifier
        return await verifier.verify(commit, issue=line.issue, kind=kind, scope=(), name=name)

    @contextlib.asynccontextmanager
    async def _claimed(self, subject: str) -> AsyncIterator[None]:
        if (await self._floor.claim(subject))[0] is None:
            raise BusyError(f"another factory integrates {subject} at this moment")
        try:
            yield
        finally:
            await asyncio.shield(self._floor.release(subject))

    def _pull(self, line: Line, branch: str, commit: str) -> PullRequest:
        base = self._floor.base_branch
        return PullRequest(
            id=line.id,
            title=line.issue.title,
            body="Integrated by hand: the suites passed on the merge; nobody verified or reviewed it.",
            branch=branch,
            base=base,
            head=commit,
            closes=(line.id,),
            run=self._floor.run,
        )


def _joined(whole: Integration, part: Integration) -> Integration:
    counts = {name: getattr(whole.conflicts, name) + getattr(part.conflicts, name) for name in COUNTS}
    return Integration(
        branch=part.branch,
        commit=part.commit,
        merged=(*whole.merged, *part.merged),
        evicted=(*whole.evicted, *part.evicted),
        conflicts=Conflicts(**counts),
        suite_runs=whole.suite_runs + part.suite_runs,
    )
