"""Proves the integration branch anew where it, or base, has moved since: nobody could merge it otherwise."""

import asyncio
import logging

from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import Resolution
from ironworks.core.models import Issue, PullRequest
from ironworks.core.policy import INTEGRATION_BRANCH, INTEGRATION_PULL
from ironworks.engine.floor import Floor
from ironworks.engine.integrate import INTEGRATION_REF, LEASE, Tip, advance, lease, not_in_use
from ironworks.engine.line import Line, Parked
from ironworks.engine.propose import put_pull
from ironworks.merge.integrator import Refused
from ironworks.merge.union import ConflictUnit

log = logging.getLogger(__name__)


async def rebuild(floor: Floor) -> None:
    """Merge the integration branch into the base branch's tip, run the suites, and move branch and record.

    Nothing where it is fit to be merged already. What cannot be stays as it is; its pull request says why.
    """
    if await stale(floor) is None:
        return
    line = Line(floor, Issue(id=LEASE, title=INTEGRATION_BRANCH, source=INTEGRATION_BRANCH), 1)
    async with floor.integrating, lease(line):
        whole = await stale(floor)
        if whole is None:
            return
        try:
            await not_in_use(line)
        except Parked as rest:
            await _put_off(line, whole, rest.detail)
            return
        base = await asyncio.to_thread(floor.parts.depot.sync, floor.base_branch)
        ref = await asyncio.to_thread(floor.parts.depot.sync, INTEGRATION_BRANCH)
        outcome = await floor.bench.integrator.land(
            base,
            whole.model_copy(update={"head": ref}),
            resolve=_nobody,
            known_failing=frozenset((await floor.baseline()).failing),
            name=line.sandbox("rebuild"),
        )
        if isinstance(outcome, Refused):
            await _put_off(line, whole, f"it does not fit {floor.base_branch}: {outcome.detail}")
            return
        await advance(line, Tip(ref, base), outcome)
        await put_pull(line, whole.model_copy(update={"head": outcome.commit, "reason": ""}))


async def _put_off(line: Line, whole: PullRequest, why: str) -> None:
    """Say in the record why it could not be proved anew. The next run tries again."""
    log.warning("%s was not proved anew: %s", INTEGRATION_BRANCH, why)
    await put_pull(line, whole.model_copy(update={"reason": excerpt(f"not proved anew: {why}", 2000)}))


async def stale(floor: Floor) -> PullRequest | None:
    """The integration pull request, if it is open and could not be merged as it is."""
    whole = await asyncio.to_thread(floor.parts.forge.pull, INTEGRATION_PULL)
    depot = floor.parts.depot
    if (
        whole is None
        or whole.state != "open"
        or not await asyncio.to_thread(depot.remote_ref, INTEGRATION_REF)
    ):
        return None
    ref = await asyncio.to_thread(depot.sync, INTEGRATION_BRANCH)
    base = await asyncio.to_thread(depot.sync, floor.base_branch)
    if await asyncio.to_thread(depot.is_ancestor, ref, base):
        return None
    fit = ref == whole.head and await asyncio.to_thread(depot.is_ancestor, base, ref)
    return None if fit else whole


async def _nobody(_: ConflictUnit) -> Resolution | str:
    return "no agent is asked, for the work of many issues is in it"
