"""Asking an agent: attempt after attempt, until it hands off something valid or the stage closes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ironworks.agents.desk import CheckResult, ToolDesk
from ironworks.agents.dialog import Dialog, converse
from ironworks.agents.prompt import PromptContext, render
from ironworks.agents.transcript import FileTranscript
from ironworks.core.errors import SandboxError
from ironworks.core.events import Limit, LimitReached, StageFinished, StageStarted
from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import ANSWERS
from ironworks.core.models import AgentStage, Model, Stage
from ironworks.core.ports import AgentTask, Mount, Sandbox
from ironworks.core.settings import AgentSettings
from ironworks.core.states import ParkReason
from ironworks.egress.attachment import Attachment
from ironworks.egress.grant import Grant
from ironworks.engine.floor import Station
from ironworks.engine.line import Line, Parked
from ironworks.sandbox.service import services

MUCH_OUTPUT = 1_000_000
"""Bytes."""
STAGE_OF: dict[AgentStage, Stage] = {
    "triage": "triage",
    "work": "work",
    "review": "review",
    "resolve": "integrate",
}


@dataclass
class Question:
    """What is asked of the agent of one stage."""

    stage: AgentStage
    label: str
    """Names this exchange within the issue: `triage`, `work-2`, ..."""
    context: PromptContext
    input: dict[str, object]
    sandbox: str
    ready: Callable[[Sandbox], Awaitable[None]]
    """Brings a freshly booted sandbox to where the agent starts; may run on a disk that is there already."""
    finish: Callable[[Station, "Exchange"], Awaitable[None]] | None = None
    """Runs while the sandbox is still up, also when the agent failed: nothing may be lost."""
    check: Callable[[Station], Awaitable[CheckResult]] | None = None
    session: str | None = None


class Exchange(Model):
    """How one attempt ended."""

    handoff: dict[str, Any] | None = None
    """Validated against the stage's model."""
    trouble: ParkReason | None
    """Why there is no handoff that can be used; None = there is one."""
    detail: str = ""
    session: str | None = None
    agent_s: float = 0.0
    cost_usd: float = 0.0
    duration_s: float = 0.0
    cpu_s: float = 0.0
    pids_refused: int = 0
    oom_kills: int = 0
    disk_kills: int = 0


STOPPED = Exchange(trouble="stalled", detail="the run was stopped")


async def consult(line: Line, question: Question) -> Exchange:
    """The first attempt that ends in a handoff. Parked when none does, or a budget or question stops it."""
    attempts = line.settings.limits.attempts
    for attempt in range(1, attempts + 1):
        exchange = await _attempt(line, question, attempt)
        if exchange.trouble is None:
            return exchange
        if exchange.trouble in {"over_budget", "looping", "needs_input"}:
            break
        # A retry must change an input: the next prompt says what went wrong.
        failure = f"your previous attempt ended without a result: {exchange.detail}"
        question.context = question.context.model_copy(
            update={"findings": (*question.context.findings, excerpt(failure, 4000))}
        )
        question.session = None
    assert exchange.trouble is not None
    raise Parked(exchange.trouble, exchange.detail)


async def _attempt(line: Line, question: Question, attempt: int) -> Exchange:
    floor, stage = line.floor, STAGE_OF[question.stage]
    number = await attempt_number(line, stage, question.label, attempt)
    started = StageStarted(run=floor.run, issue=line.id, stage=stage, attempt=number)
    await line.record(started, question.label, attempt)
    transcript = FileTranscript(
        floor.parts.state / "logs" / floor.run / line.id / f"{question.label}-{attempt}"
    )
    began = time.monotonic()
    try:
        exchange = await _in_station(line, question, attempt, number, transcript)
    except SandboxError as error:
        exchange = Exchange(trouble="stalled", detail=f"the sandbox died: {error}")
    finally:
        transcript.close()
    exchange = exchange.model_copy(update={"duration_s": time.monotonic() - began})
    for reached in _limits(line, stage, exchange, transcript.dropped):
        await line.record(reached, reached.limit, question.label, attempt)
    await line.record(_finished(line, stage, number, exchange), question.label, attempt)
    return exchange


async def _in_station(
    line: Line, question: Question, attempt: int, number: int, transcript: FileTranscript
) -> Exchange:
    floor = line.floor
    settings = line.agent_for(question.stage)
    spec = floor.spec(question.sandbox, snapshot=floor.bench.base.snapshot, mounts=_mounts(line, settings))
    desk = Desk(question)
    async with floor.station(spec, _grant(line, STAGE_OF[question.stage], number), tools=desk) as station:
        desk.station = station
        try:
            exchange = await _once(line, question, attempt, desk, transcript)
        except asyncio.CancelledError:
            # Somebody stopped the run, or the claim is lost: what the agent has done is kept all the same.
            if question.finish is not None:
                await asyncio.shield(question.finish(station, STOPPED))
            raise
        if question.finish is not None:
            await question.finish(station, exchange)
        usage = await station.sandbox.usage()
        counted = usage.model_dump(include={"cpu_s", "pids_refused", "oom_kills", "disk_kills"})
        return exchange.model_copy(update=counted)


async def _once(
    line: Line, question: Question, attempt: int, desk: "Desk", transcript: FileTranscript
) -> Exchange:
    """The exchange; the one already had, if a crash came between its end and its record."""
    fact = line.key("exchange", question.label, attempt)
    known = await line.floor.recall(fact)
    if known is not None:
        return Exchange.model_validate(known)
    station = desk.station
    await question.ready(station.sandbox)
    settings = line.agent_for(question.stage)
    task = AgentTask(
        stage=question.stage,
        issue=line.issue,
        prompt=render(question.stage, question.context),
        input=question.input,
        settings=settings,
        session=question.session or f"{question.stage}-{attempt}",
        env=station.attachment.env,
    )
    agent = line.floor.parts.agent(settings.use, desk.last_sign_s)
    # Who triages reads; the others run the project's tests.
    wanted = {} if question.stage == "triage" else line.settings.sandbox.services
    async with services(station.sandbox, wanted):
        talk = converse(agent, station.sandbox, task, transcript, answer=ANSWERS[question.stage])
        exchange = _judge(await _unless(talk, desk.asked, desk.looping), desk, station.attachment)
    await line.floor.remember(fact, exchange)
    return exchange


class Desk(ToolDesk):
    """A tool desk that knows the station it stands in."""

    station: Station

    def __init__(self, question: Question) -> None:
        check = self._run_check if question.check else None
        super().__init__(ANSWERS[question.stage], check=check, on_ask=self._take_question)
        self.asked = asyncio.Event()
        self._question = question

    def last_sign_s(self) -> float:
        """The monotonic second of the last sign of life beside output: a check at work, or model traffic."""
        return time.monotonic() if self.checking else self.station.attachment.last_traffic_s

    async def _run_check(self) -> CheckResult:
        assert self._question.check is not None
        return await self._question.check(self.station)

    async def _take_question(self, _: str) -> str:
        self.asked.set()
        return "noted; you are paused until a person answers"


async def _unless(talk: Coroutine[None, None, Dialog], *ends: asyncio.Event) -> Dialog:
    """The dialog, or a cancelled one as soon as one of `ends` is set."""
    talking = asyncio.ensure_future(talk)
    waits = [asyncio.ensure_future(end.wait()) for end in ends]
    try:
        await asyncio.wait([talking, *waits], return_when=asyncio.FIRST_COMPLETED)
        if talking.done():
            return talking.result()
        return Dialog(ending="cancelled", exchanges=0, agent_s=0.0)
    finally:
        for task in (talking, *waits):
            task.cancel()
        await asyncio.wait([talking, *waits])


def _judge(dialog: Dialog, desk: ToolDesk, attachment: Attachment) -> Exchange:
    trouble, detail = _trouble(dialog, desk, attachment)
    handoff = (dialog.handoff or desk.handoff) if trouble is None else None
    return Exchange(
        handoff=None if handoff is None else handoff.model_dump(mode="json"),
        trouble=trouble,
        detail=detail,
        session=dialog.session,
        agent_s=dialog.agent_s,
        cost_usd=attachment.spent_usd,
    )


def _trouble(dialog: Dialog, desk: ToolDesk, attachment: Attachment) -> tuple[ParkReason | None, str]:
    """Why an exchange gave nothing to go on with, and that in words; None if it did."""
    if desk.questions:
        return "needs_input", "\n".join(desk.questions)
    if desk.looping.is_set():
        return "looping", "the worker came back to a tree it already had, with the same failures"
    if dialog.handoff is not None or (dialog.ending == "no_handoff" and desk.handoff is not None):
        return None, ""
    if attachment.over_budget:
        return "over_budget", f"${attachment.spent_usd:.4f} in this attempt"
    if dialog.ending in {"timeout", "silent"}:
        return "stalled", f"{dialog.ending}: {dialog.detail}"
    if attachment.provider_failure:
        return "provider", attachment.provider_failure
    return "attempts", f"no valid handoff ({dialog.ending}): {dialog.detail}"


def _limits(line: Line, stage: Stage, exchange: Exchange, dropped: int) -> list[LimitReached]:
    """What the sandbox wanted and did not get; cut lines alone are no news."""
    pids, kills, full = exchange.pids_refused, exchange.oom_kills, exchange.disk_kills
    reached: list[tuple[Limit, int, str]] = [
        ("pids", pids, f"it wanted more processes than it may have: refused, {pids} x"),
        ("memory", kills, f"it wanted more memory than it may have: processes ended, {kills} x"),
        ("disk", full, f"its disk grew larger than it may be: all its processes ended, {full} x"),
        (
            "output",
            dropped if dropped > MUCH_OUTPUT else 0,
            f"it printed {dropped / 1e6:.0f} MB too much; dropped",
        ),
    ]
    return [
        LimitReached(run=line.floor.run, issue=line.id, stage=stage, limit=limit, detail=detail)
        for limit, count, detail in reached
        if count
    ]


def _grant(line: Line, stage: Stage, number: int) -> Grant:
    budget = line.settings.budget
    return Grant(
        key=line.key(stage, number),
        run=line.floor.run,
        issue=line.id,
        stage=stage,
        issue_cap_usd=line.floor.budget_of(line.issue),
        run_cap_usd=budget.run_usd,
        day_cap_usd=budget.day_usd,
        models=True,
        allow=line.settings.network.allow,
    )


def _mounts(line: Line, settings: AgentSettings) -> list[Mount]:
    agent = line.floor.parts.agent(settings.use, time.monotonic)
    mounts = [line.floor.bench.mount, *agent.mounts]
    if settings.dir:
        mounts.append(Mount(host=str(line.floor.parts.repository / settings.dir), inside="/agent"))
    return mounts


def _finished(line: Line, stage: Stage, number: int, exchange: Exchange) -> StageFinished:
    return StageFinished(
        run=line.floor.run,
        issue=line.id,
        stage=stage,
        attempt=number,
        outcome=exchange.trouble or _outcome(exchange.handoff or {}),
        duration_s=exchange.duration_s,
        agent_s=exchange.agent_s,
        cpu_s=exchange.cpu_s,
        cost_usd=exchange.cost_usd,
        handoff=exchange.handoff or {"detail": excerpt(exchange.detail, 4000)},
    )


def _outcome(handoff: dict[str, Any]) -> str:
    words = [handoff[name] for name in ("decision", "status", "verdict") if name in handoff]
    return str(words[0]) if words else "done"


async def attempt_number(line: Line, stage: Stage, label: str, attempt: int) -> int:
    """The attempt's running number within issue and stage: the same again when a restart repeats it."""
    key = line.key("number", label, attempt)
    known = await line.floor.recall(key)
    if known is not None:
        return int(str(known["number"]))
    counter = f"{line.floor.run}/{line.id}/attempts/{stage}"
    number = int(str((await line.floor.recall(counter) or {"number": 0})["number"])) + 1
    await line.floor.remember(counter, _Number(number=number))
    await line.floor.remember(key, _Number(number=number))
    return number


class _Number(Model):
    number: int
