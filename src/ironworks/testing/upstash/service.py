"""What the emulated service holds: tenants with their boxes and snapshots, and what passes with time."""

import asyncio
import contextlib
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ironworks.core.clock import Clock
from ironworks.sandbox.local.tree import remove_tree, size_bytes
from ironworks.testing.upstash.box import Box, Snapshot
from ironworks.testing.upstash.egress import Egress
from ironworks.testing.upstash.fault import Creation, Faults
from ironworks.testing.upstash.http import ApiError, Connection, Reply, Request
from ironworks.testing.upstash.thread import in_thread

MAX_LABELS, MAX_LABEL = 5, 20
BOXES, SNAPSHOTS = "emulated-boxes", "emulated-snapshots"
MIRRORS = "/opt/box/mirrors"
WORDS = ("amber", "brisk", "calm", "dusty", "eager", "fuzzy", "gentle", "happy", "icy", "jolly")
ANIMALS = ("wasp", "otter", "heron", "lynx", "mole", "newt", "owl", "puma", "quail", "raven")


@dataclass
class Options:
    """How the emulated service is set up. Times are in seconds of its clock."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    """Names that boxes can reach → `127.0.0.1:PORT`."""
    repositories: Mapping[str, Path] = field(default_factory=dict)
    """Repository URLs → bare repositories of this machine, which boxes clone and push in their place."""
    max_boxes: int = 10
    """Of one tenant at once, paused ones included."""
    idle_pause_s: float = 3600.0
    pause_s: float = 0.0
    resume_s: float = 0.0
    snapshot_s: float = 0.0
    snapshot_polls: int = 0
    agent: Callable[[str], str] | None = None
    """What the built-in agent answers to a prompt; without it, it says what it is told to say."""


@dataclass
class Tenant:
    """One API key's world."""

    boxes: dict[str, Box] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Box:
        """By id or by name."""
        box = self.boxes.get(name) or next(
            (b for b in self.boxes.values() if b.body.get("name") == name), None
        )
        if box is None:
            raise ApiError(404, "box not found")
        return box


class Service:
    """All tenants, on one clock and one folder."""

    def __init__(self, state: Path, clock: Clock, options: Options) -> None:
        self.clock = clock
        self.options = options
        self.egress = Egress(options.hosts)
        self.faults = Faults()
        self.creations: deque[Creation] = deque()
        self.tenants: dict[str, Tenant] = {}
        self._state = state
        self._count = 0
        self._copying: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Clear away what an emulator that was killed has left in the folder."""
        for name in (BOXES, SNAPSHOTS):
            if (self._state / name).exists():
                await in_thread(remove_tree, self._state / name)

    def tenant(self, key: str) -> Tenant:
        return self.tenants.setdefault(key, Tenant())

    def boxes(self) -> list[Box]:
        return [box for tenant in self.tenants.values() for box in tenant.boxes.values()]

    async def create(self, tenant: Tenant, body: dict[str, Any], snapshot: Snapshot | None) -> Box:
        """Check, and make the disk; the box counts even if it gets ready later, or never."""
        check_labels(body.get("labels") or [])
        name = body.get("name")
        if name and any(box.body.get("name") == name for box in tenant.boxes.values()):
            raise ApiError(409, f"a box named {name} already exists")
        if len(tenant.boxes) >= self.options.max_boxes:
            raise ApiError(403, f"box limit reached: {self.options.max_boxes}")
        self._count += 1
        id = f"{secrets.choice(WORDS)}-{secrets.choice(ANIMALS)}-{self._count:05d}"
        creation = self.creations.popleft() if self.creations else Creation()
        inherited: dict[str, Any] = snapshot.settings if snapshot else {}
        root = self._state / BOXES / id / "root"
        box = Box(id, {**inherited, **body}, root, self.clock, self.egress, creation)
        box.team_env = tenant.env
        box.mirrors, box.git_rules = self._mirrors()
        tenant.boxes[id] = box
        await box.make(snapshot.root if snapshot else None)
        return box

    def _mirrors(self) -> tuple[dict[str, Path], dict[str, str]]:
        """The repositories as folders inside, and the variables that make git take them for their URLs."""
        mirrors = {
            f"{MIRRORS}/{index}": path for index, path in enumerate(self.options.repositories.values())
        }
        rules = {"GIT_CONFIG_COUNT": str(2 * len(mirrors))} if mirrors else {}
        for index, (url, inside) in enumerate(zip(self.options.repositories, mirrors, strict=True)):
            rules |= {
                f"GIT_CONFIG_KEY_{2 * index}": f"url.{inside}.insteadOf",
                f"GIT_CONFIG_VALUE_{2 * index}": url,
                f"GIT_CONFIG_KEY_{2 * index + 1}": "safe.directory",
                f"GIT_CONFIG_VALUE_{2 * index + 1}": inside,
            }
        return mirrors, rules

    async def snapshot(self, tenant: Tenant, box: Box, name: str) -> Snapshot:
        """Begin to copy the disk; the snapshot is `creating` until that is done."""
        self._count += 1
        id = f"snap_{self._count:06d}"
        taken = Snapshot(id, name, box, self._state / SNAPSHOTS / id / "root", box.now())
        tenant.snapshots[id] = taken
        task = asyncio.ensure_future(self._copy(box, taken))
        self._copying.add(task)
        task.add_done_callback(self._copying.discard)
        return taken

    async def _copy(self, box: Box, taken: Snapshot) -> None:
        due_s = self.clock.monotonic_s() + self.options.snapshot_s
        try:
            await box.copy_to(taken.root)
            taken.size_bytes = await in_thread(size_bytes, taken.root)
            while self.clock.monotonic_s() < due_s:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        except (OSError, RuntimeError) as error:
            taken.status = "error"
            box.log("system", f"snapshot failed: {error}", "error")
        else:
            if taken.status == "creating":
                taken.status = "ready"

    async def delete_box(self, tenant: Tenant, id: str) -> None:
        box = tenant.boxes.pop(id, None)
        if box is None:
            raise ApiError(404, "box not found")
        await box.delete()

    async def delete_snapshot(self, tenant: Tenant, id: str) -> None:
        taken = tenant.snapshots.pop(id, None)
        if taken is None:
            raise ApiError(404, "snapshot not found")
        taken.status = "deleted"
        if taken.root.parent.exists():
            await in_thread(remove_tree, taken.root.parent)

    async def tick(self) -> None:
        """What time alone brings about: pauses, ends, boxes that get ready."""
        for tenant in self.tenants.values():
            for box in list(tenant.boxes.values()):
                with contextlib.suppress(ApiError):
                    if box.expired:
                        await self.delete_box(tenant, box.id)
                    else:
                        await box.tick(self.options.idle_pause_s)

    async def close(self) -> None:
        for task in self._copying:
            task.cancel()
        await asyncio.gather(*self._copying, return_exceptions=True)
        for tenant in self.tenants.values():
            for id in list(tenant.boxes):
                await self.delete_box(tenant, id)
            for id in list(tenant.snapshots):
                await self.delete_snapshot(tenant, id)


@dataclass
class Call:
    """One authenticated request on its way to its handler. `words`: what the route's pattern caught."""

    service: Service
    tenant: Tenant
    request: Request
    connection: Connection
    words: tuple[str, ...]

    @property
    def box(self) -> Box:
        """The box named by the path's first word."""
        box = self.tenant.find(self.words[0])
        box.settle()
        return box

    def text(self, name: str, default: str | None = None) -> str:
        """A field of the JSON body."""
        value = self.request.json().get(name)
        if isinstance(value, str) and value:
            return value
        if default is None:
            raise ApiError(400, f"{name} is required")
        return default


Handler = Callable[[Call], Any]
Route = tuple[str, "re.Pattern[str]", Handler]
"""Method, pattern of the whole path, and a coroutine function: its `Reply`, or None if it took over."""
BOX = r"/v2/box/([^/]+)"


def route(method: str, pattern: str, handler: Handler) -> Route:
    return method, re.compile(pattern), handler


def check_labels(labels: object) -> None:
    if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels):
        raise ApiError(400, "labels must be strings")
    if len(labels) > MAX_LABELS or any(len(label) > MAX_LABEL for label in labels):
        raise ApiError(400, f"at most {MAX_LABELS} labels of at most {MAX_LABEL} characters")
    if len(set(labels)) < len(labels):
        raise ApiError(409, "duplicate label")


__all__ = ["BOX", "ApiError", "Box", "Call", "Options", "Reply", "Route", "Service", "Tenant", "route"]
