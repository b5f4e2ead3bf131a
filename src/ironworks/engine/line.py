"""One issue on its way through a run: its name, its claim, its record, and how it comes to rest."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ironworks.agents.prompt import PromptContext
from ironworks.core.crash import crash_point
from ironworks.core.errors import FencedError, IronworksError, SandboxError
from ironworks.core.events import (
    ClaimLost,
    Event,
    IssueAsked,
    IssueClaimed,
    IssueEvicted,
    IssueFailed,
    IssueLanded,
    IssueParked,
    IssueQueued,
    IssueRejected,
)
from ironworks.core.handoffs import Integration, TriageReport
from ironworks.core.models import AgentStage, Claim, Issue, Model
from ironworks.core.settings import AgentSettings, Settings
from ironworks.core.states import ParkReason
from ironworks.engine.durable import step

if TYPE_CHECKING:
    from ironworks.engine.floor import Floor

Shape = TypeVar("Shape", bound=Model)
Args = ParamSpec("Args")


class Parked(Exception):
    """The issue must wait for a person; the reason names the way out."""

    def __init__(self, reason: ParkReason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason: ParkReason = reason
        self.detail = detail


class Line:
    """What every stage of one issue shares. Made anew after a restart; holds nothing that must last."""

    def __init__(self, floor: "Floor", issue: Issue, generation: int) -> None:
        self.floor = floor
        self.issue = issue
        self.generation = generation
        self.suite_s = 0.0
        """Seconds that suites ran for it while it was being integrated."""

    @property
    def settings(self) -> Settings:
        return self.floor.settings

    @property
    def id(self) -> str:
        return self.issue.id

    def key(self, *parts: object) -> str:
        """A name that is the same after every restart, and different for everything else."""
        return "/".join([self.floor.run, self.id, str(self.generation), *map(str, parts)])

    def sandbox(self, *parts: object) -> str:
        """The deterministic name of one of its sandboxes; another text of the issue has other ones."""
        return "-".join([self.id[:50].rstrip("-"), self.issue.digest[:8], *map(str, parts)])

    @property
    def memory(self) -> str:
        """Prefix of what is known about this text of the issue beyond one run."""
        return f"issue/{self.id}/{self.issue.digest[:16]}"

    async def record(self, event: Event, *parts: object) -> None:
        await self.floor.record(event, key=self.key(event.kind, *parts))

    async def step(
        self,
        name: str,
        shape: type[Shape],
        work: Callable[Args, Awaitable[Shape]],
        *args: Args.args,
        **kwargs: Args.kwargs,
    ) -> Shape:
        """Run one recorded step between two crash points. Resting and failing are recorded outcomes too."""

        async def recorded() -> dict[str, Any]:
            self._crash_point("before", name)
            await self.floor.gate(self.id)
            try:
                result = await _twice(work, *args, **kwargs)
            except Parked as rest:
                return {"parked": rest.reason, "detail": rest.detail}
            except FencedError as error:
                return {"lost": str(error)}
            except IronworksError as error:
                return {"failed": error.code, "detail": f"{error.message} {error.hint}".strip()}
            self._crash_point("after", name)
            return {"done": result.model_dump(mode="json")}

        outcome = await step(name, recorded)
        if "parked" in outcome:
            raise Parked(outcome["parked"], outcome["detail"])
        if "lost" in outcome:
            raise FencedError(outcome["lost"])
        if "failed" in outcome:
            raise StepFailed(outcome["failed"], outcome["detail"])
        return shape.model_validate(outcome["done"])

    def _crash_point(self, side: str, name: str) -> None:
        crash_point(f"flow.{side}_{name.partition('-')[0]}")

    def agent_for(self, stage: AgentStage) -> AgentSettings:
        """Who does `stage`. What the entry itself wishes is about the work, not about who judges it."""
        settings = self.settings.agent_for(stage)
        wishes = self.issue.wishes
        if stage != "work":
            return settings
        update = {"use": wishes.agent or settings.use, "model": wishes.model or settings.model}
        return settings.model_copy(update=update)

    # -- what the stages ask -----------------------------------------------------------------------

    @property
    def work_sandbox(self) -> str:
        """The worker's own: the same in every round, and when a person sends the issue back."""
        return self.sandbox("work")

    @property
    def answers(self) -> tuple[str, ...]:
        return self.floor.answers.get(self.id, ())

    async def context(self, round: int = 1, **more: Any) -> PromptContext:
        """What every prompt says of the issue, and `more`."""
        context = PromptContext(
            issue=self.issue,
            round=round,
            answers=self.answers,
            tests=tuple(suite.command for suite in self.settings.project.test),
            files=await self.floor.context_files(),
        )
        return context.model_copy(update=more)

    async def diff(self, old: str, new: str) -> str:
        return await asyncio.to_thread(self.floor.parts.depot.diff, old, new)

    async def is_ancestor(self, old: str, new: str) -> bool:
        return await asyncio.to_thread(self.floor.parts.depot.is_ancestor, old, new)

    async def spent_usd(self) -> float:
        return await asyncio.to_thread(lambda: self.floor.parts.ledger.spent(issue=self.id))

    # -- the claim ---------------------------------------------------------------------------------

    async def hold(self) -> bool:
        """Get, or get back, the exclusive right to work on this issue."""
        crash_point("flow.before_claim")
        claim, stolen = await self.floor.claim(self.id)
        if claim is None:
            await self.record(ClaimLost(run=self.floor.run, issue=self.id), "hold")
            return False
        if await self._is_done_elsewhere() or await self._has_rested_elsewhere(claim):
            await self.record(ClaimLost(run=self.floor.run, issue=self.id), "done")
            return False
        event = IssueClaimed(
            run=self.floor.run, issue=self.id, epoch=claim.epoch, commit=claim.commit, stolen=stolen
        )
        await self.record(event, claim.epoch)
        crash_point("flow.after_claim")
        return True

    async def _is_done_elsewhere(self) -> bool:
        """Whether another run has landed it since our intake: its claim is free, its work is done."""
        pull = await asyncio.to_thread(self.floor.parts.forge.pull, self.id)
        return pull is not None and pull.run != self.floor.run and await self.floor.is_integrated(pull)

    async def _has_rested_elsewhere(self, claim: Claim) -> bool:
        """Whether another factory has brought it to rest, asked or parked or else, since it was queued."""
        rested_at = await asyncio.to_thread(self.floor.parts.claims.rested_at, claim)
        if rested_at is None:
            return False
        log = await asyncio.to_thread(
            lambda: self.floor.parts.store.events(run=self.floor.run, issue=self.id)
        )
        queued = [item.at for item in log if isinstance(item.event, IssueQueued)]
        return bool(queued) and queued[-1] < rested_at

    async def fence(self) -> Claim:
        """The claim, proved ours at this moment; FencedError otherwise. Call before every side effect."""
        return await self.floor.fence(self.id)

    def leave_floor(self) -> None:
        """Let another issue start: what is left of this one runs no agent of its own."""
        self.floor.leave(self.id)

    # -- coming to rest ----------------------------------------------------------------------------

    async def ask(self, report: TriageReport) -> None:
        questions = report.questions or (report.reason or "What exactly should change?",)
        await self.fence()
        await self.floor.ask(self.id, questions)
        await self.record(IssueAsked(run=self.floor.run, issue=self.id, questions=questions))

    async def reject(self, report: TriageReport) -> None:
        await self.record(
            IssueRejected(run=self.floor.run, issue=self.id, reason=report.reason or "no reason given")
        )

    async def park(self, rest: Parked) -> None:
        await self.record(
            IssueParked(run=self.floor.run, issue=self.id, reason=rest.reason, detail=rest.detail)
        )

    async def fail(self, code: str, detail: str) -> None:
        await self.record(IssueFailed(run=self.floor.run, issue=self.id, code=code, detail=detail))

    async def lose(self) -> None:
        await self.record(ClaimLost(run=self.floor.run, issue=self.id))

    async def land(self, integration: Integration) -> None:
        for landing in integration.merged:
            event = IssueLanded(
                run=self.floor.run, issue=self.id, branch=integration.branch, commit=landing.commit
            )
            await self.record(event)
        for eviction in integration.evicted:
            gone = IssueEvicted(
                run=self.floor.run, issue=self.id, reason=eviction.reason, detail=eviction.detail
            )
            await self.record(gone)


class StepFailed(Exception):
    """The factory itself failed at a step; recorded, so that a restart does not try it again by itself."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


async def _twice(work: Callable[Args, Awaitable[Shape]], *args: Args.args, **kwargs: Args.kwargs) -> Shape:
    """Once more where a sandbox died under it: that is the machine's fault, and steps can be repeated."""
    try:
        return await work(*args, **kwargs)
    except SandboxError as error:
        if error.retry != "now":
            raise
        return await work(*args, **kwargs)
