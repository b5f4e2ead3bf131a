"""A run from first issue to report: intake, one durable flow per issue, people's commands, the end."""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Sequence

from ironworks.core.crash import crash_point
from ironworks.core.errors import FencedError, IronworksError, MissingError
from ironworks.core.events import (
    AnswerGiven,
    BudgetRaised,
    IssueAsked,
    IssueEvicted,
    IssueParked,
    IssuePaused,
    IssueQueued,
    IssueRejected,
    IssueResumed,
    IssueSkipped,
    Recorded,
    RunFinished,
    RunStarted,
    state_of,
)
from ironworks.core.handoffs import Integration, ReviewReport, Verification
from ironworks.core.models import Issue
from ironworks.core.policy import order_issues, skip_reason
from ironworks.core.report import RunReport
from ironworks.core.states import GOOD, RESTING, State
from ironworks.engine import bench, durable
from ironworks.engine.alone import Alone
from ironworks.engine.floor import Floor, Parts
from ironworks.engine.flow import flow
from ironworks.engine.line import Line, Parked, StepFailed
from ironworks.engine.report import build_report
from ironworks.store.store import Message, Store

log = logging.getLogger(__name__)

KEPT_RESTS: frozenset[State] = frozenset({"asked", "rejected", "parked", "evicted"})
"""Rests of an earlier run that only a person ends."""
INBOX_POLL_S = 1.0

Rest = IssueAsked | IssueRejected | IssueParked | IssueEvicted | IssueSkipped


def current_run(store: Store) -> str:
    """The id of the run to work on: the last one if it has not ended, else a new one."""
    runs = [run for run in store.runs() if run]
    if runs and not _ended(store, runs[-1]):
        return runs[-1]
    return f"run-{secrets.token_hex(4)}"


def _ended(store: Store, run: str) -> bool:
    events = [recorded.event for recorded in store.events(run=run, issue="")]
    return any(isinstance(event, RunFinished) and not event.stopped for event in events)


class Factory:
    """One run in one process. `run` may be called once; `stop` and `look` at any time from the same loop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.floor = Floor(parts)
        self._lines: dict[str, Line] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(
        self, *, issues: Sequence[str] | None = None, watch: Callable[[Recorded], None] | None = None
    ) -> RunReport:
        """Work on every open issue, or those named, until each rests; continues a run that was cut short."""
        if watch is not None:
            self.floor.watchers.append(watch)
        await self._begin()
        async with durable.launched(self.parts.state / "engine.db", self._flow):
            heartbeat = asyncio.create_task(self.floor.heartbeat())
            try:
                await self._take_in(issues)
                await self.look()
                await self._work()
                if not self._stopping.is_set():
                    await self._baseline
            finally:
                heartbeat.cancel()
                await self._interrupt()
        return await self._finish()

    async def verify(self, branch: str) -> Verification:
        """Only the verifier, on any branch."""
        return await Alone(self.parts).verify(branch)

    async def review(self, branch: str) -> ReviewReport:
        """Only the reviewer, told what the verifier found."""
        return (await Alone(self.parts).review(branch)).report

    async def integrate(self, branches: Sequence[str]) -> Integration:
        """Only the integrator: each branch in turn, suite after each."""
        return await Alone(self.parts).integrate(branches)

    def stop(self, *, now: bool = False) -> None:
        """End the run soon: agents are interrupted, their work captured, claims kept for the next start.

        `now` does not wait for captures; the sandboxes' disks hold the work.
        """
        self._stopping.set()
        self._changed.set()
        if now:
            for task in self._tasks.values():
                task.cancel()

    # -- beginning ---------------------------------------------------------------------------------

    async def _begin(self) -> None:
        parts = self.parts
        await asyncio.to_thread(parts.ledger.recover)
        base = parts.settings.project.base
        self.floor.base_branch = base or await asyncio.to_thread(parts.depot.current_branch)
        tip = await asyncio.to_thread(parts.depot.sync, self.floor.base_branch)
        known = await self.floor.recall(f"{parts.run}/base")
        commit = str(known["commit"]) if known else tip
        await asyncio.to_thread(parts.store.remember, f"{parts.run}/base", {"commit": commit})
        started = RunStarted(
            run=parts.run,
            repository=str(parts.repository),
            base=self.floor.base_branch,
            backlog=parts.backlog,
            pid=os.getpid(),
            settings=parts.settings.model_dump(mode="json"),
        )
        await self.floor.record(started, key=f"{parts.run}/RunStarted/{secrets.token_hex(4)}")
        self.floor.bench = await bench.set_up(self.floor, commit)
        self._baseline = asyncio.create_task(bench.take_baseline(self.floor))

    async def _take_in(self, only: Sequence[str] | None) -> None:
        """Freeze and queue what is to be worked on, leave out what policy leaves out."""
        found = await asyncio.to_thread(self.parts.forge.issues)
        pulls = await asyncio.to_thread(self.parts.forge.pulls)
        wanted = _chosen(found, only)
        self.floor.titles = {issue.id: issue.title for issue in found}
        ordered = order_issues(wanted)
        self.floor.order = [issue.id for issue in ordered]
        room = self.parts.settings.limits.max_open_pull_requests - sum(pull.state == "open" for pull in pulls)
        for issue in ordered:
            events = await asyncio.to_thread(lambda id=issue.id: self.parts.store.events(issue=id))  # type: ignore[misc]
            self._recall_people(issue.id, events)
            reason = skip_reason(issue, pulls)
            if reason and not any(recorded.event.run == self.parts.run for recorded in events):
                if reason != "closed":
                    await self._queue(issue, 1)
                    await self._rest(IssueSkipped(run=self.parts.run, issue=issue.id, reason=reason))
                continue
            if room <= 0:
                await self._queue(issue, 1)
                await self._rest(
                    IssueSkipped(run=self.parts.run, issue=issue.id, reason="max_open_pull_requests reached")
                )
                continue
            room -= 1
            await self._admit(issue, events)

    async def _admit(self, issue: Issue, events: list[Recorded]) -> None:
        mine = [recorded for recorded in events if recorded.event.run == self.parts.run]
        if mine:
            issue, generation = _last_queued(mine) or (issue, 1)
            state, _ = state_of(mine)
            if state not in RESTING and await durable.is_over(self.parts.run, issue.id, generation):
                # Its flow broke down before it could say how it rests.
                await self._start_anew(issue, generation + 1)
            elif state not in RESTING:
                await self._start(issue, generation)
            else:
                self._lines[issue.id] = Line(self.floor, issue, generation)
            return
        state, reason = state_of(events)
        await self._queue(issue, 1)
        queued = _last_queued(events)
        if state in KEPT_RESTS and queued is not None and queued[0].digest == issue.digest:
            await self._keep_rest(issue, state, reason)
            self._lines[issue.id] = Line(self.floor, issue, 1)
            return
        await self._start(issue, 1)

    async def _keep_rest(self, issue: Issue, state: State, reason: str) -> None:
        run, again = self.parts.run, "as in an earlier run; nobody has answered or retried it since"
        rest = {"run": run, "issue": issue.id}
        events: dict[State, Callable[[], Rest]] = {
            "asked": lambda: IssueAsked(run=run, issue=issue.id, questions=(again,)),
            "rejected": lambda: IssueRejected(run=run, issue=issue.id, reason=reason or again),
            "parked": lambda: IssueParked.model_validate({**rest, "reason": reason, "detail": again}),
            "evicted": lambda: IssueEvicted.model_validate({**rest, "reason": reason, "detail": again}),
        }
        await self._rest(events[state]())

    async def _queue(self, issue: Issue, generation: int) -> None:
        event = IssueQueued(run=self.parts.run, issue=issue.id, snapshot=issue, generation=generation)
        await self.floor.record(event, key=f"{self.parts.run}/{issue.id}/queued/{generation}")

    async def _rest(self, event: Rest) -> None:
        await self.floor.record(event, key=f"{self.parts.run}/{event.issue}/intake/{event.kind}")

    def _recall_people(self, issue: str, events: list[Recorded]) -> None:
        answers = [recorded.event.text for recorded in events if isinstance(recorded.event, AnswerGiven)]
        raised = [
            recorded.event.budget_usd for recorded in events if isinstance(recorded.event, BudgetRaised)
        ]
        self.floor.answers[issue] = tuple(answers)
        if raised:
            self.floor.budgets[issue] = raised[-1]

    # -- the flows ---------------------------------------------------------------------------------

    async def _start(self, issue: Issue, generation: int) -> None:
        line = self._lines.get(issue.id)
        if line is None or line.generation != generation:
            self._lines[issue.id] = Line(self.floor, issue, generation)
        # A flow that dbos has recovered by itself may already have come to rest.
        self.floor.rests.setdefault(issue.id, asyncio.Event())
        await durable.start(self.parts.run, issue.id, generation)

    async def _start_anew(self, issue: Issue, generation: int) -> None:
        await self._queue(issue, generation)
        self.floor.rests[issue.id] = asyncio.Event()
        await self._start(issue, generation)

    async def _flow(self, run: str, issue: str, generation: int) -> None:
        """What dbos runs, also by itself after a crash: one issue from its place in the queue to its rest."""
        line = await self._line(run, issue, generation)
        if line is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks[issue] = task
        try:
            await self.floor.enter(issue)
            self.floor.when_lost(issue, task.cancel)
            await self._to_rest(line)
            await self.floor.release(issue)
        finally:
            self.floor.leave(issue)
            self._tasks.pop(issue, None)
            self.floor.rests.setdefault(issue, asyncio.Event()).set()
            self._changed.set()

    async def _to_rest(self, line: Line) -> None:
        """Every way a flow can end, as an event with a way out. The one place where anything is caught."""
        try:
            if await line.hold():
                await flow(line)
        except Parked as rest:
            await line.park(rest)
        except FencedError:
            await line.lose()
        except StepFailed as failure:
            await line.fail(failure.code, failure.detail)
        except asyncio.CancelledError:
            if self._stopping.is_set() or not self.floor.has_lost(line.id):
                raise
            await line.lose()
        except IronworksError as error:
            await line.fail(error.code, str(error))
        except Exception as error:  # the supervisor: one issue's fault must not end the others
            log.exception("the pipeline of %s failed", line.id)
            await line.fail("internal", f"{type(error).__name__}: {error}")
        await self._clean_up(line)

    async def _line(self, run: str, issue: str, generation: int) -> Line | None:
        line = self._lines.get(issue)
        if line is not None and line.generation == generation:
            return line
        events = await asyncio.to_thread(lambda: self.parts.store.events(run=run, issue=issue))
        queued = _last_queued(events)
        if run != self.parts.run or queued is None or queued[1] != generation:
            return None
        self._recall_people(issue, await asyncio.to_thread(lambda: self.parts.store.events(issue=issue)))
        self._lines[issue] = Line(self.floor, queued[0], generation)
        return self._lines[issue]

    async def _clean_up(self, line: Line) -> None:
        state, _ = await self._state(line.id)
        policy = self.parts.settings.cleanup.when
        finished = state in GOOD and state != "asked"
        if (policy == "always" and finished) or (policy == "success" and state in {"landed", "merged"}):
            await self.parts.backend.destroy(line.work_sandbox)

    async def _state(self, issue: str) -> tuple[State, str]:
        events = await asyncio.to_thread(lambda: self.parts.store.events(run=self.parts.run, issue=issue))
        return state_of(events)

    async def _work(self) -> None:
        """Wait until every flow rests, or somebody stops the run; look at the inbox meanwhile."""
        while not self._stopping.is_set():
            if self._baseline.done():
                self._baseline.result()
            waiting = [issue for issue, rest in self.floor.rests.items() if not rest.is_set()]
            if not waiting and not await asyncio.to_thread(self.parts.store.inbox):
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), INBOX_POLL_S)
            await self.look()

    async def _interrupt(self) -> None:
        self._baseline.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._baseline, return_exceptions=True)

    # -- people's commands -------------------------------------------------------------------------

    async def look(self) -> None:
        """Carry out what people have left in the inbox."""
        for message in await asyncio.to_thread(self.parts.store.inbox):
            try:
                result = await self._obey(message)
            except IronworksError as error:
                result = f"error[{error.code}]: {error}"
            await asyncio.to_thread(self.parts.store.handled, message.id, result)
            self._changed.set()

    async def _obey(self, message: Message) -> str:
        issue = message.issue
        if message.verb == "pause":
            for name in self._meant(issue):
                await self.floor.pause(name)
                paused = IssuePaused(run=self.parts.run, issue=name)
                await self.floor.record(paused, key=f"message/{message.id}/{name}")
            return "paused"
        if message.verb == "resume":
            for name in self._meant(issue):
                await self.floor.resume(name)
                resumed = IssueResumed(run=self.parts.run, issue=name)
                await self.floor.record(resumed, key=f"message/{message.id}/{name}")
            return "resumed"
        if message.verb == "answer":
            text = str(message.payload.get("text", ""))
            given = AnswerGiven(run=self.parts.run, issue=issue, text=text)
            await self.floor.record(given, key=f"message/{message.id}")
            self.floor.answers[issue] = (*self.floor.answers.get(issue, ()), text)
            return await self._send_back(issue, ("asked", "parked"))
        if message.verb == "retry":
            if budget := message.payload.get("budget_usd"):
                raised = BudgetRaised(run=self.parts.run, issue=issue, budget_usd=float(budget))
                await self.floor.record(raised, key=f"message/{message.id}/budget")
                self.floor.budgets[issue] = float(budget)
            return await self._send_back(issue, tuple(RESTING - {"landed", "merged"}))
        return f"error[usage]: unknown command {message.verb!r}"

    def _meant(self, issue: str) -> list[str]:
        """The issue named, or all of them; MissingError when there is no such issue."""
        if issue and issue not in self._lines:
            raise MissingError(f"no issue {issue!r} in {self.parts.run}", hint="ironworks status")
        return [issue] if issue else list(self._lines)

    async def _send_back(self, issue: str, states: Sequence[State]) -> str:
        line = self._lines[self._meant(issue)[0]]
        state, _ = await self._state(issue)
        if state not in states:
            return f"{issue} is {state}: nothing to do"
        await self._start_anew(line.issue, line.generation + 1)
        return "queued"

    # -- the end -----------------------------------------------------------------------------------

    async def _finish(self) -> RunReport:
        crash_point("run.before_report")
        await self.parts.backend.collect(await self._kept_disks())
        stopped = self._stopping.is_set()
        report = await self._report()
        finished = RunFinished(run=self.parts.run, exit_code=report.exit_code, stopped=stopped)
        await self.floor.record(finished, key=f"{self.parts.run}/RunFinished/{secrets.token_hex(4)}")
        crash_point("run.after_report")
        return await self._report()

    async def _report(self) -> RunReport:
        pulls = await asyncio.to_thread(self.parts.forge.pulls)
        state = str(self.parts.state)
        return await asyncio.to_thread(
            build_report, self.parts.store, self.parts.run, pulls=pulls, state_dir=state
        )

    async def _kept_disks(self) -> frozenset[str]:
        """Disks somebody may come back to: of issues that do not rest yet, or that a person can send back."""
        kept = set()
        for line in self._lines.values():
            state, _ = await self._state(line.id)
            if self.parts.settings.cleanup.when != "always" or state not in GOOD or state == "asked":
                kept.add(line.work_sandbox)
        return frozenset(kept)


def _chosen(found: list[Issue], only: Sequence[str] | None) -> list[Issue]:
    if only is None:
        return found
    unknown = set(only) - {issue.id for issue in found}
    if unknown:
        raise MissingError(
            f"no issue {', '.join(sorted(unknown))}", hint="`ironworks status` lists their ids"
        )
    return [issue for issue in found if issue.id in only]


def _last_queued(events: list[Recorded]) -> tuple[Issue, int] | None:
    for recorded in reversed(events):
        if isinstance(recorded.event, IssueQueued):
            return recorded.event.snapshot, recorded.event.generation
    return None
