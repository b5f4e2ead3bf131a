"""Intake: what a run works on, read once, frozen, in the order it is to be started."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ironworks.core.errors import ConfigError, MissingError
from ironworks.core.events import (
    AnswerGiven,
    BudgetRaised,
    Event,
    IssueAsked,
    IssueEvicted,
    IssueParked,
    IssueQueued,
    IssueRejected,
    IssueSkipped,
    Recorded,
    state_of,
)
from ironworks.core.models import Issue
from ironworks.core.policy import order_issues, skip_reason
from ironworks.core.states import RESTING, State
from ironworks.engine.floor import Floor

KEPT_RESTS: frozenset[State] = frozenset({"asked", "rejected", "parked", "evicted"})
"""Rests of an earlier run that only a person ends."""


@dataclass(frozen=True)
class Entry:
    """One issue of a run, with all that was ever recorded about it."""

    issue: Issue
    """As it is now; as this run had frozen it, where it has begun."""
    generation: int
    begun: bool
    """This run had taken it in before it was interrupted."""
    skip: str
    """Why policy leaves it out; empty = it is work."""
    events: list[Recorded]

    def rests_in(self, run: str) -> bool:
        """Whether `run` has already brought it to rest."""
        mine = [recorded for recorded in self.events if recorded.event.run == run]
        return len(mine) > 1 and state_of(mine)[0] in RESTING


async def take_in(floor: Floor, only: Sequence[str] | None) -> list[Entry]:
    """Read the backlog. All that this run has begun goes on as it was frozen, in `only` and there or not:
    the run could not end well without it.

    MissingError for an unknown id in `only`.
    """
    found = await asyncio.to_thread(floor.parts.forge.issues)
    pulls = await asyncio.to_thread(floor.parts.forge.pulls)
    lives = by_issue(await asyncio.to_thread(floor.parts.store.events))
    begun = _begun(floor.run, lives)
    floor.titles = {issue.id: issue.title for issue in found}
    fresh = [issue for issue in _chosen(found, only) if issue.id not in begun]
    ordered = order_issues([*(issue for issue, _ in begun.values()), *fresh])
    floor.order = [issue.id for issue in ordered]
    taken = {pull.id for pull in pulls if pull.state == "open"} | begun.keys()
    entries: list[Entry] = []
    for issue in ordered:
        events = lives.get(issue.id, [])
        recall_people(floor, issue.id, events)
        known = begun.get(issue.id)
        reason = "" if known else skip_reason(issue, pulls) or _unfit(floor, issue)
        if reason == "closed":
            continue
        if not reason and issue.id not in taken:
            if len(taken) >= floor.settings.limits.max_open_pull_requests:
                reason = "max_open_pull_requests reached"
            else:
                taken.add(issue.id)
        entries.append(Entry(issue, known[1] if known else 1, known is not None, reason, events))
    return entries


def _unfit(floor: Floor, issue: Issue) -> str:
    """Why the agent that the entry names cannot work here; empty = it can, or none is named."""
    wanted = issue.wishes.agent
    try:
        if wanted:
            floor.parts.agent(wanted, time.monotonic).mounts  # noqa: B018 - looking is what finds out
    except ConfigError as error:
        return f"it wants the agent {wanted!r}: {error.message}; {error.hint}"
    return ""


async def admit(floor: Floor, entry: Entry) -> bool:
    """Record how an entry begins in this run; whether it is to move now."""
    issue, run = entry.issue, floor.run
    mine = [recorded for recorded in entry.events if recorded.event.run == run]
    if len(mine) > 1:
        return state_of(mine)[0] not in RESTING
    await queue(floor, issue, entry.generation)
    if entry.skip:
        await _rest(floor, IssueSkipped(run=run, issue=issue.id, reason=entry.skip))
        return False
    earlier = [recorded for recorded in entry.events if recorded.event.run != run]
    before = last_queued(earlier)
    if state_of(earlier)[0] in KEPT_RESTS and before is not None and before[0].digest == issue.digest:
        await _rest(floor, _same_rest(run, earlier))
        return False
    return True


async def queue(floor: Floor, issue: Issue, generation: int) -> None:
    """Freeze an issue's text, and say that it waits."""
    event = IssueQueued(run=floor.run, issue=issue.id, snapshot=issue, generation=generation)
    await floor.record(event, key=f"{floor.run}/{issue.id}/queued/{generation}")


async def _rest(floor: Floor, event: Event) -> None:
    await floor.record(event, key=f"{floor.run}/{event.issue}/intake/{event.kind}")


def _same_rest(run: str, earlier: Sequence[Recorded]) -> Event:
    """How an earlier run left the issue, with its questions or its reason: nobody has acted on them since."""
    kinds = (IssueAsked, IssueRejected, IssueParked, IssueEvicted)
    rests = [recorded.event for recorded in earlier if isinstance(recorded.event, kinds)]
    return rests[-1].model_copy(update={"run": run})


def by_issue(events: Iterable[Recorded]) -> dict[str, list[Recorded]]:
    """The lives of all issues, each in order."""
    lives: dict[str, list[Recorded]] = defaultdict(list)
    for recorded in events:
        if recorded.event.issue:
            lives[recorded.event.issue].append(recorded)
    return lives


def last_queued(events: Sequence[Recorded]) -> tuple[Issue, int] | None:
    """The newest frozen text of an issue, and its generation."""
    for recorded in reversed(events):
        if isinstance(recorded.event, IssueQueued):
            return recorded.event.snapshot, recorded.event.generation
    return None


def recall_people(floor: Floor, issue: str, events: Sequence[Recorded]) -> None:
    """What people have ever said about an issue: their answers, and the cap they last gave it."""
    facts = [recorded.event for recorded in events]
    floor.answers[issue] = tuple(fact.text for fact in facts if isinstance(fact, AnswerGiven))
    raised = [fact.budget_usd for fact in facts if isinstance(fact, BudgetRaised)]
    if raised:
        floor.budgets[issue] = raised[-1]


def _begun(run: str, lives: dict[str, list[Recorded]]) -> dict[str, tuple[Issue, int]]:
    mine = {id: [item for item in events if item.event.run == run] for id, events in lives.items()}
    queued = {id: last_queued(events) for id, events in mine.items()}
    return {id: found for id, found in queued.items() if found is not None}


def _chosen(found: list[Issue], only: Sequence[str] | None) -> list[Issue]:
    if only is None:
        return found
    unknown = set(only) - {issue.id for issue in found}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise MissingError(f"the backlog has no issue {names}", hint="`ironworks status` lists their ids")
    return [issue for issue in found if issue.id in only]
