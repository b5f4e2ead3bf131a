"""A run from first issue to report: intake, one durable flow per issue, people's commands, the end."""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Coroutine, Sequence

from ironworks.core.crash import crash_point
from ironworks.core.errors import FencedError, IronworksError, MissingError
from ironworks.core.events import (
    AnswerGiven,
    BudgetRaised,
    IssuePaused,
    IssueResumed,
    Recorded,
    RunFinished,
    RunStarted,
    state_of,
)
from ironworks.core.handoffs import Baseline, Integration, ReviewReport, Verification
from ironworks.core.policy import skip_reason
from ironworks.core.report import Grade, RunReport
from ironworks.core.states import GOOD, RESTING, State
from ironworks.engine import bench, durable
from ironworks.engine.alone import Alone
from ironworks.engine.floor import Floor, Parts
from ironworks.engine.flow import flow
from ironworks.engine.intake import Entry, admit, by_issue, last_queued, queue, recall_people, take_in
from ironworks.engine.line import Line, Parked, StepFailed
from ironworks.engine.rebuild import rebuild, stale
from ironworks.engine.report import build_report
from ironworks.store.store import Message, Store

log = logging.getLogger(__name__)

INBOX_POLL_S = 1.0


def current_run(store: Store) -> str:
    """The id of the run to work on: the last one until it is over and somebody was told, else a new one."""
    runs = [run for run in store.runs() if run]
    if runs and not (_ended(store, runs[-1]) and store.recall(_told_key(runs[-1]))):
        return runs[-1]
    return f"run-{secrets.token_hex(4)}"


def mark_told(store: Store, run: str) -> None:
    """Remember that the report of `run` was handed out: the next run is a new one."""
    store.remember(_told_key(run), {"told": True})


def _told_key(run: str) -> str:
    return f"{run}/told"


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
        self.retold = False
        """Whether the run was over before this process began: its report is told once more."""

    async def run(
        self, *, issues: Sequence[str] | None = None, watch: Callable[[Recorded], None] | None = None
    ) -> RunReport:
        """Work on every open issue, or those named, until each rests; continues a run that was cut short.

        One that was cut short after its end, with nothing new to do, is reported again and left as it is.
        """
        if watch is not None:
            self.floor.watchers.append(watch)
        waiting = await self._begin(issues)
        if self.retold:
            return await self._report()
        busy = waiting or await self._has_other_work()
        if busy and await self._unless_stopped(self._set_up()):
            await self._produce(waiting)
        return await self._finish()

    async def _has_other_work(self) -> bool:
        """Whether people have said something, or the integration branch must be proved anew."""
        said = await asyncio.to_thread(self.parts.store.inbox)
        return bool(said) or await stale(self.floor) is not None

    async def _unless_stopped(self, part: Coroutine[None, None, None]) -> bool:
        """Whether a part of the run has ended before somebody stopped it: preparing may take an hour."""
        begun = asyncio.ensure_future(part)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([begun, stopped], return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                begun.result()
            return begun.done()
        finally:
            for task in (begun, stopped):
                task.cancel()
            await asyncio.wait([begun, stopped])

    async def _produce(self, waiting: Sequence[Line]) -> None:
        async with durable.launched(self.parts.state / "engine.db", self._flow):
            heartbeat = asyncio.create_task(self.floor.heartbeat())
            try:
                for line in waiting:
                    await self._start(line)
                await self.look()
                await self._work()
                if not self._stopping.is_set():
                    await self._baseline
                    await self._unless_stopped(rebuild(self.floor))
            finally:
                # Leases are renewed until the last capture has ended.
                await self._interrupt()
                heartbeat.cancel()

    async def verify(self, branch: str) -> Verification:
        """Only the verifier, on any branch."""
        return await Alone(self.parts).verify(branch)

    async def review(self, branch: str) -> ReviewReport:
        """Only the reviewer, told what the verifier found."""
        return (await Alone(self.parts).review(branch)).report

    async def integrate(self, branches: Sequence[str]) -> Integration:
        """Only the integrator: each branch in turn, suite after each."""
        return await Alone(self.parts).integrate(branches)

    async def baseline(self) -> Baseline:
        """Only the base: prepared, and its suites run once."""
        return await Alone(self.parts).baseline()

    async def grade(self, revisions: Sequence[str]) -> list[Grade]:
        """Only the hidden suite, on any revisions; by default on the base branch."""
        return await Alone(self.parts).grade(revisions)

    async def grade_landed(self, commit: str) -> Grade | None:
        """The grade of what a run has landed, trouble included; None when somebody stops it before."""
        grades: list[Grade] = []

        async def work() -> None:
            try:
                grades.extend(await self.grade([commit]))
            except IronworksError as error:
                grades.append(Grade(commit=commit, problem=f"{error} {error.hint}".strip()))

        await self._unless_stopped(work())
        return grades[0] if grades else None

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

    async def _begin(self, only: Sequence[str] | None) -> list[Line]:
        """Read the backlog and record the start; the lines that are to move. A wrong order starts no run."""
        parts = self.parts
        await asyncio.to_thread(parts.ledger.recover)
        base = parts.settings.project.base
        self.floor.base_branch = base or await asyncio.to_thread(parts.depot.current_branch)
        tip = await asyncio.to_thread(parts.depot.sync, self.floor.base_branch)
        known = await self.floor.recall(f"{parts.run}/base")
        self._base = str(known["commit"]) if known else tip
        entries = await take_in(self.floor, only)
        self.retold = await self._is_over(entries)
        if self.retold:
            return []
        started = RunStarted(
            run=parts.run,
            repository=str(parts.repository),
            base=self.floor.base_branch,
            backlog=parts.backlog,
            pid=os.getpid(),
            settings=parts.settings.model_dump(mode="json"),
        )
        await self.floor.record(started, key=f"{parts.run}/RunStarted/{secrets.token_hex(4)}")
        # Those that rest are known too: people may send them back.
        self._lines = {entry.issue.id: Line(self.floor, entry.issue, entry.generation) for entry in entries}
        return [self._lines[entry.issue.id] for entry in entries if await admit(self.floor, entry)]

    async def _is_over(self, entries: Sequence[Entry]) -> bool:
        """Whether this run has ended, and neither backlog nor people want anything more of it."""
        run = self.parts.run
        if not await asyncio.to_thread(_ended, self.parts.store, run):
            return False
        return all(entry.rests_in(run) for entry in entries) and not await self._has_other_work()

    async def _set_up(self) -> None:
        self.floor.bench = await bench.set_up(self.floor, self._base)
        self._baseline = asyncio.create_task(bench.take_baseline(self.floor))

    # -- the flows ---------------------------------------------------------------------------------

    async def _start(self, line: Line) -> None:
        if await durable.is_over(self.parts.run, line.id, line.generation):
            # Its flow broke down before it could say how it rests.
            await self._start_anew(line)
            return
        # A flow that dbos has recovered by itself may already have come to rest.
        self.floor.rests.setdefault(line.id, asyncio.Event())
        await durable.start(self.parts.run, line.id, line.generation)

    async def _start_anew(self, line: Line) -> None:
        """The next generation: a new flow with the same disk, session and captured work."""
        anew = self._lines[line.id] = Line(self.floor, line.issue, line.generation + 1)
        await queue(self.floor, anew.issue, anew.generation)
        self.floor.rests[anew.id] = asyncio.Event()
        await durable.start(self.parts.run, anew.id, anew.generation)

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
        queued = last_queued(events)
        if run != self.parts.run or queued is None or queued[1] != generation:
            return None
        recall_people(
            self.floor, issue, await asyncio.to_thread(lambda: self.parts.store.events(issue=issue))
        )
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
        pull = await asyncio.to_thread(self.parts.forge.pull, issue)
        if pull is not None and await self.floor.is_integrated(pull):
            return f"{issue} is {pull.state} already: nothing to do"
        if reason := skip_reason(line.issue, ()):
            return f"error[refused]: {reason}"
        await self._start_anew(line)
        return "queued"

    # -- the end -----------------------------------------------------------------------------------

    async def _finish(self) -> RunReport:
        crash_point("run.before_report")
        stopped = self._stopping.is_set()
        if not stopped:
            await self.parts.backend.collect(await self._kept_disks())
        report = await self._report()
        code = report.exit_code or int(stopped and not report.issues)
        finished = RunFinished(run=self.parts.run, exit_code=code, stopped=stopped)
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
        lives = by_issue(await asyncio.to_thread(self.parts.store.events))
        for id, events in lives.items():
            queued = last_queued(events)
            if queued is None or not (id in self._lines or id in self.floor.titles):
                continue
            state, _ = state_of(events)
            if self.parts.settings.cleanup.when != "always" or state not in GOOD or state == "asked":
                kept.add(Line(self.floor, *queued).work_sandbox)
        return frozenset(kept)
