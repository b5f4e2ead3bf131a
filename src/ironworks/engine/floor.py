"""The shop floor: everything the stages of a run share, and the rules for sharing it."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ironworks.core.clock import Clock
from ironworks.core.errors import CapabilityError, FencedError, IronworksError
from ironworks.core.events import Event, Recorded
from ironworks.core.handoffs import Baseline
from ironworks.core.models import Claim, Issue, Model, PullRequest
from ironworks.core.policy import INTEGRATION_BRANCH
from ironworks.core.ports import Agent, Forge, Mount, Sandbox, SandboxBackend, SandboxSpec
from ironworks.core.settings import Settings, in_bytes
from ironworks.egress.attachment import Attachment
from ironworks.egress.gateway import Gateway
from ironworks.egress.grant import Grant, Tools
from ironworks.engine.cache import offline
from ironworks.forge.claim import Claims
from ironworks.git.depot import Depot
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

if TYPE_CHECKING:
    from ironworks.engine.bench import Bench

log = logging.getLogger(__name__)

CONTEXT_BYTES = 60_000


@dataclass(frozen=True)
class Parts:
    """The implementations a composition root has chosen."""

    run: str
    repository: Path
    state: Path
    settings: Settings
    depot: Depot
    forge: Forge
    claims: Claims
    store: Store
    ledger: Ledger
    backend: SandboxBackend
    gateway: Gateway
    agent: Callable[[str, Callable[[], float]], Agent]
    """By name, and what tells the monotonic second of its last model traffic."""
    clock: Clock
    backlog: str = ""


@dataclass
class Station:
    """A sandbox that is up, and its way out."""

    sandbox: Sandbox
    attachment: Attachment


@dataclass
class Floor:
    """Made once per process; what must last is in the store, the depot and the repository's refs."""

    parts: Parts
    recording: bool = True
    bench: "Bench" = field(init=False)
    base_branch: str = ""
    titles: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What people answered, by issue, oldest first."""
    budgets: dict[str, float] = field(default_factory=dict)
    """Raised caps in US dollars, by issue."""
    order: list[str] = field(default_factory=list)
    """Issues in the order they land in; one waits only for those before it."""
    rests: dict[str, asyncio.Event] = field(default_factory=dict)
    watchers: list[Callable[[Recorded], None]] = field(default_factory=list)
    integrating: asyncio.Lock = field(default_factory=asyncio.Lock)
    _held: dict[str, Claim] = field(default_factory=dict)
    _on_lost: dict[str, Callable[[], object]] = field(default_factory=dict)
    _paused: dict[str, asyncio.Event] = field(default_factory=dict)
    _stations: dict[str, list[Sandbox]] = field(default_factory=lambda: defaultdict(list))
    _inside: set[str] = field(default_factory=set)
    _serials: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.baselined: asyncio.Future[Baseline] = self._loop.create_future()
        self._slots = asyncio.Semaphore(self.settings.limits.parallel)

    @property
    def run(self) -> str:
        return self.parts.run

    @property
    def settings(self) -> Settings:
        return self.parts.settings

    # -- the record --------------------------------------------------------------------------------

    async def record(self, event: Event, *, key: str) -> None:
        """Append to the log; a repeat of `key` is nothing. Watchers see what was new."""
        await asyncio.to_thread(self.record_now, event, key)

    def record_now(self, event: Event, key: str) -> None:
        """The same, blocking, from any thread; watchers are called in the loop's."""
        if not self.recording:
            return
        seq = self.parts.store.append(event, key=key)
        if seq is not None and self.watchers:
            recorded = Recorded.model_construct(seq=seq, at=self.parts.clock.now(), key=key, event=event)
            self._loop.call_soon_threadsafe(self._show, recorded)

    def _show(self, recorded: Recorded) -> None:
        for watch in self.watchers:
            watch(recorded)

    async def remember(self, key: str, fact: Model) -> None:
        await asyncio.to_thread(self.parts.store.remember, key, fact.model_dump(mode="json"))

    async def recall(self, key: str) -> dict[str, object] | None:
        return await asyncio.to_thread(self.parts.store.recall, key)

    # -- what a run knows of its issues ------------------------------------------------------------

    def budget_of(self, issue: Issue) -> float:
        """The issue's cap in US dollars: as raised by a person, as its entry wishes, or the project's."""
        return self.budgets.get(issue.id) or issue.wishes.budget_usd or self.settings.budget.issue_usd

    async def rested(self, name: str, *, before: str) -> None:
        """Wait until the issue called `name` (id or title) rests, if it goes before `before` in this run."""
        earlier = self.order[: self.order.index(before)] if before in self.order else []
        wanted = [issue for issue in earlier if name in {issue, self.titles.get(issue)}]
        for issue in wanted:
            if issue in self.rests:
                await self.rests[issue].wait()

    def serial(self, issue: str) -> int:
        """1, 2, 3, ... within an issue and process."""
        self._serials[issue] += 1
        return self._serials[issue]

    async def context_files(self) -> dict[str, str]:
        """Files of the base commit that the operator wants in every prompt; missing ones are left out."""
        files = {}
        for path in self.settings.agent.context:
            data = await asyncio.to_thread(self.parts.depot.read, self.bench.base.commit, path)
            if data is not None:
                files[path] = data[:CONTEXT_BYTES].decode("utf-8", "replace")
        return files

    async def baseline(self) -> Baseline:
        """What fails on base already. Waits for good where it cannot be measured: the run then ends."""
        return await asyncio.shield(self.baselined)

    async def is_integrated(self, pull: PullRequest) -> bool:
        """Whether the integration branch, or base, holds the work of a pull request that says so."""
        return pull.state in {"landed", "merged"} and await asyncio.to_thread(self._is_integrated, pull)

    def _is_integrated(self, pull: PullRequest) -> bool:
        depot = self.parts.depot
        for branch in (INTEGRATION_BRANCH, self.base_branch):
            if depot.remote_ref(f"refs/heads/{branch}") is not None:
                tip = depot.sync(branch)
                if depot.resolve(pull.head) is not None and depot.is_ancestor(pull.head, tip):
                    return True
        return False

    # -- slots: how many issues are worked on at once ----------------------------------------------

    async def enter(self, issue: str) -> None:
        if issue not in self._inside:
            await self._slots.acquire()
            self._inside.add(issue)

    def leave(self, issue: str) -> None:
        if issue in self._inside:
            self._inside.discard(issue)
            self._slots.release()

    # -- pausing -----------------------------------------------------------------------------------

    async def gate(self, issue: str) -> None:
        """Wait here while a person holds the issue."""
        gate = self._paused.get(issue)
        if gate is not None:
            await gate.wait()

    async def pause(self, issue: str) -> None:
        """Hold an issue before its next stage, and freeze what runs for it now."""
        self._paused.setdefault(issue, asyncio.Event())
        for sandbox in self._stations[issue]:
            await sandbox.pause()

    async def resume(self, issue: str) -> None:
        gate = self._paused.pop(issue, None)
        if gate is None:
            return
        for sandbox in self._stations[issue]:
            await sandbox.resume()
        gate.set()

    def is_paused(self, issue: str) -> bool:
        return issue in self._paused

    # -- claims ------------------------------------------------------------------------------------

    async def claim(self, subject: str) -> tuple[Claim | None, bool]:
        """Take or get back the claim on `subject`; the flag says whether it was a dead factory's."""
        claim = await asyncio.to_thread(self.parts.claims.acquire, subject)
        if claim is None:
            return None, False
        self._held[subject] = claim
        return claim, await asyncio.to_thread(self.parts.claims.stolen, claim)

    async def fence(self, subject: str) -> Claim:
        """The claim, if the repository still says that it is ours; FencedError otherwise."""
        claim = self._held.get(subject)
        if claim is None:
            raise FencedError(f"the claim on {subject!r} is lost")
        await asyncio.to_thread(self.parts.claims.fence, claim)
        return claim

    async def release(self, subject: str) -> None:
        claim = self._held.pop(subject, None)
        self._on_lost.pop(subject, None)
        if claim is not None:
            await asyncio.to_thread(self.parts.claims.release, claim)

    def when_lost(self, subject: str, act: Callable[[], object]) -> None:
        """Call `act` as soon as a heartbeat finds that somebody else holds `subject`."""
        self._on_lost[subject] = act

    def has_lost(self, subject: str) -> bool:
        return subject not in self._held

    async def heartbeat(self) -> None:
        """Renew every lease, three times in its life, until cancelled."""
        while True:
            await asyncio.sleep(self.settings.limits.lease_s / 3)
            for subject in list(self._held):
                await self._renew(subject)

    async def _renew(self, subject: str) -> None:
        claim = self._held.get(subject)
        if claim is None:
            return
        try:
            renewed = await asyncio.to_thread(self.parts.claims.renew, claim)
        except IronworksError as error:
            # The lease still runs; only its end, or another owner, takes the claim away.
            log.warning("the claim on %s could not be renewed: %s", subject, error)
            return
        if subject not in self._held:
            return
        if renewed is not None:
            self._held[subject] = renewed
            return
        self._held.pop(subject)
        self._on_lost.pop(subject, lambda: None)()

    async def ask(self, issue: str, questions: Sequence[str]) -> None:
        await asyncio.to_thread(self.parts.forge.ask, issue, questions)

    # -- stations ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def station(
        self,
        spec: SandboxSpec,
        grant: Grant,
        *,
        tools: Tools | None = None,
    ) -> AsyncIterator[Station]:
        """A sandbox with its gateway, up for the length of the block; its disk stays afterwards."""
        sandbox = await self.parts.backend.create(spec)
        if sandbox.listener is None:
            await sandbox.stop()
            raise CapabilityError("this sandbox backend has no way to the gateway")
        attachment = self.parts.gateway.attach(sandbox.listener, grant, tools=tools, ways=sandbox.ways)
        mine = self._stations[grant.issue]
        mine.append(sandbox)
        try:
            yield Station(sandbox, attachment)
        finally:
            mine.remove(sandbox)
            await asyncio.shield(_take_down(sandbox, attachment))

    def spec(self, name: str, *, snapshot: str | None, mounts: Sequence[Mount] = ()) -> SandboxSpec:
        """A sandbox of this run's size, with the base repository at hand."""
        size = self.settings.sandbox
        return SandboxSpec(
            name=name,
            snapshot=snapshot,
            # What begins empty is to be prepared, with the network; the rest has what its snapshot holds.
            env=offline(self.settings) if snapshot else {},
            mounts=tuple(mounts),
            cpus=size.cpus,
            memory_bytes=in_bytes(size.memory),
            pids=size.pids,
            disk_bytes=in_bytes(size.disk),
            transparent=size.transparent,
        )


async def _take_down(sandbox: Sandbox, attachment: Attachment) -> None:
    await attachment.close()
    await sandbox.stop()
