"""Integrate: one pull request at a time onto the integration branch, which never ends red or half merged."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import ConflictError, FencedError
from ironworks.core.events import StageFinished, StageStarted
from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import Eviction, Integration, Landing, Resolution, Verification
from ironworks.core.models import PullRequest
from ironworks.core.policy import INTEGRATION_BRANCH, INTEGRATION_PULL
from ironworks.core.ports import Sandbox
from ironworks.engine.consult import Question, attempt_number, consult
from ironworks.engine.evidence import integration_body
from ironworks.engine.line import Line, Parked
from ironworks.engine.propose import put_pull
from ironworks.merge.integrator import Landed, Refused
from ironworks.merge.union import ConflictUnit

INTEGRATION_REF = f"refs/heads/{INTEGRATION_BRANCH}"
LEASE = "integrator"
LEASE_POLL_S = 0.5
LEASE_PATIENCE_S = 6 * 3600


@dataclass(frozen=True)
class Tip:
    """Where the integration branch is, and where the next merge starts: elsewhere when base has moved on."""

    ref: str | None
    start: str


async def integrate(line: Line, pull: PullRequest, verification: Verification) -> Integration:
    """Land one pull request, or evict it with a reason. Idempotent: finds what a crash cut off."""
    floor = line.floor
    await _after_dependencies(line)
    await not_in_use(line)
    async with floor.integrating, lease(line):
        number = await attempt_number(line, "integrate", f"integrate-{line.generation}", 1)
        started = StageStarted(run=floor.run, issue=line.id, stage="integrate", attempt=number)
        await line.record(started, "integrate")
        began = time.monotonic()
        passed = frozenset(test for test, outcome in verification.tests.items() if outcome == "passed")
        integration = await land_branch(line, pull, passed)
        await publish(line, pull, integration)
        finished = StageFinished(
            run=floor.run,
            issue=line.id,
            stage="integrate",
            attempt=number,
            outcome="landed" if integration.merged else "evicted",
            duration_s=time.monotonic() - began,
            suite_s=line.suite_s,
            handoff=integration.model_dump(mode="json"),
        )
        await line.record(finished, "integrate")
        return integration


async def land_branch(line: Line, pull: PullRequest, passed: frozenset[str] = frozenset()) -> Integration:
    """Merge, prove that the tests in `passed` still pass, and move the branch. Pull requests come later."""
    tip = await integration_tip(line)
    before = await _landed_before(line, pull, tip)
    if before is not None:
        return before
    known = frozenset((await line.floor.baseline()).failing)
    outcome = await line.floor.bench.integrator.land(
        tip.start,
        pull,
        resolve=lambda unit: _resolve(line, pull, tip, unit),
        known_failing=known,
        expected=passed,
        name=line.sandbox("integrate", line.generation),
    )
    if isinstance(outcome, Refused):
        eviction = Eviction(issue=line.id, reason=outcome.reason, detail=excerpt(outcome.detail, 20_000))
        return Integration(
            branch=INTEGRATION_BRANCH,
            commit=tip.start,
            evicted=(eviction,),
            conflicts=outcome.conflicts,
            suite_runs=outcome.suite_runs,
        )
    crash_point("integrate.after_suite")
    line.suite_s += outcome.run.duration_s
    integration = Integration(
        branch=INTEGRATION_BRANCH,
        commit=outcome.commit,
        merged=(Landing(issue=line.id, commit=outcome.commit),),
        conflicts=outcome.conflicts,
        suite_runs=outcome.suite_runs,
    )
    await line.floor.remember(line.key("landing"), integration)
    await advance(line, tip, outcome)
    return integration


async def _landed_before(line: Line, pull: PullRequest, tip: Tip) -> Integration | None:
    """What a crash, after the branch had moved, has left to be said."""
    if tip.ref is None or not await line.is_ancestor(pull.head, tip.ref):
        return None
    known = await line.floor.recall(line.key("landing"))
    if known is not None:
        return Integration.model_validate(known)
    landing = Landing(issue=line.id, commit=tip.ref)
    return Integration(branch=INTEGRATION_BRANCH, commit=tip.ref, merged=(landing,))


async def integration_tip(line: Line) -> Tip:
    """Base's tip when there is nothing to integrate onto, or everything integrated is merged already."""
    base = await asyncio.to_thread(line.floor.parts.depot.sync, line.floor.base_branch)
    ref = await asyncio.to_thread(line.floor.parts.depot.remote_ref, INTEGRATION_REF)
    if ref is None or await line.is_ancestor(ref, base):
        return Tip(ref, base)
    if await line.is_ancestor(base, ref):
        return Tip(ref, ref)
    merge = await asyncio.to_thread(line.floor.parts.depot.merge, ref, base)
    if not merge.clean:
        words = f"{INTEGRATION_BRANCH} and {line.floor.base_branch} conflict: merge or delete the former"
        raise Parked("attempts", words)
    message = f"Merge {line.floor.base_branch} into {INTEGRATION_BRANCH}"
    start = await asyncio.to_thread(line.floor.parts.depot.commit, merge.tree, [ref, base], message)
    return Tip(ref, start)


async def advance(line: Line, tip: Tip, landed: Landed) -> None:
    """Move the integration branch, only while both claims hold and nobody else has moved it."""
    crash_point("integrate.before_ref")
    await line.fence()
    await line.floor.fence(LEASE)
    depot = line.floor.parts.depot
    if not await asyncio.to_thread(depot.push, INTEGRATION_REF, landed.commit, expected=tip.ref):
        raise ConflictError(
            f"{INTEGRATION_BRANCH} was moved by somebody else while {line.id} was being merged",
            hint=f"ironworks retry {line.id}",
        )
    crash_point("integrate.after_ref")


async def publish(line: Line, pull: PullRequest, integration: Integration) -> None:
    """Say in the pull requests what the branch already is."""
    if integration.evicted:
        gone = integration.evicted[0]
        why = excerpt(f"{gone.reason}: {gone.detail}", 2000)
        await put_pull(line, pull.model_copy(update={"state": "evicted", "reason": why}))
        return
    await put_pull(line, pull.model_copy(update={"state": "landed"}))
    whole = await asyncio.to_thread(line.floor.parts.forge.pull, INTEGRATION_PULL)
    # A landing that a crash cut off may be older than what has landed, proved like it, since.
    newer = whole is not None and whole.state == "open" and await _holds(line, whole, integration.commit)
    head = whole.head if whole is not None and newer else integration.commit
    titles = {**line.floor.titles, line.id: line.issue.title}
    closes = () if whole is None or whole.state != "open" else whole.closes
    closes = (*[issue for issue in closes if await _is_in(line, issue, head)], line.id)
    await put_pull(
        line,
        PullRequest(
            id=INTEGRATION_PULL,
            kind="integration",
            title=f"Integrate {len(closes)} change{'s' if len(closes) > 1 else ''}",
            body=integration_body([(issue, titles.get(issue, "")) for issue in closes]),
            branch=INTEGRATION_BRANCH,
            base=line.floor.base_branch,
            head=head,
            closes=closes,
            run=line.floor.run,
        ),
    )
    crash_point("integrate.after_pull")


async def _holds(line: Line, pull: PullRequest, commit: str) -> bool:
    known = await asyncio.to_thread(line.floor.parts.depot.resolve, pull.head)
    return known is not None and await line.is_ancestor(commit, pull.head)


async def _is_in(line: Line, issue: str, commit: str) -> bool:
    """Whether `commit` holds another issue's work: a person may have thrown an earlier branch away."""
    pull = await asyncio.to_thread(line.floor.parts.forge.pull, issue)
    if issue == line.id or pull is None:
        return False
    known = await asyncio.to_thread(line.floor.parts.depot.resolve, pull.head)
    return known is not None and await line.is_ancestor(pull.head, commit)


async def _resolve(line: Line, pull: PullRequest, tip: Tip, unit: ConflictUnit) -> Resolution | str:
    """An agent's answer to one conflicted file, or why it has none."""
    floor = line.floor

    async def ready(sandbox: Sandbox) -> None:
        await floor.bench.place(sandbox, tip.start)

    label = f"resolve-{line.generation}-{floor.serial(line.id)}"
    name = line.sandbox(label)
    try:
        exchange = await consult(
            line,
            Question(
                stage="resolve",
                label=label,
                context=await line.context(
                    path=unit.path,
                    base=unit.base or "",
                    ours=unit.ours,
                    theirs=unit.theirs,
                    reason=unit.reason,
                ),
                input={
                    "path": unit.path,
                    "base": unit.base or "",
                    "ours": unit.ours,
                    "theirs": unit.theirs,
                    "reason": unit.reason,
                    "issues": {"theirs": line.issue.model_dump(mode="json")},
                },
                sandbox=name,
                ready=ready,
            ),
        )
    except Parked as rest:
        return excerpt(f"the resolver gave no answer: {rest.reason}: {rest.detail}", 2000)
    finally:
        await floor.parts.backend.destroy(name)
    return Resolution.model_validate(exchange.handoff)


async def not_in_use(line: Line) -> None:
    """Parked where somebody has the branch checked out: git rightly refuses to move it."""
    if used := await asyncio.to_thread(line.floor.parts.depot.checkout_of, INTEGRATION_BRANCH):
        there = await asyncio.to_thread(Path(used).exists)
        way = "check out another branch there" if there else "git worktree prune"
        raise Parked("attempts", f"{INTEGRATION_BRANCH} is checked out in {used}: {way}, then retry")


async def _after_dependencies(line: Line) -> None:
    for name in line.issue.wishes.depends_on:
        await line.floor.rested(name, before=line.id)


@contextlib.asynccontextmanager
async def lease(line: Line) -> AsyncIterator[None]:
    """The one right to move the integration branch, over all factories on this repository."""
    floor = line.floor
    crash_point("integrate.before_lease")
    deadline = time.monotonic() + LEASE_PATIENCE_S
    while (await floor.claim(LEASE))[0] is None:
        if time.monotonic() > deadline:
            raise FencedError("another factory has held the integrator's lease for hours")
        await asyncio.sleep(LEASE_POLL_S)
    crash_point("integrate.after_lease")
    try:
        yield
    finally:
        await asyncio.shield(floor.release(LEASE))
