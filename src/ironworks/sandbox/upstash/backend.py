"""Sandboxes at a hosted service: a box each, whose disk outlives us by itself."""

import asyncio
import contextlib
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ironworks.core.crash import crash_point
from ironworks.core.errors import (
    BusyError,
    CapabilityError,
    ConfigError,
    IronworksError,
    MissingError,
    SandboxError,
)
from ironworks.core.ports import Capability, HostCheck, Sandbox, SandboxInfo, SandboxSpec, SnapshotInfo
from ironworks.sandbox.local.cgroup import tag_of
from ironworks.sandbox.local.disk import checked
from ironworks.sandbox.upstash.record import Kept, Record
from ironworks.sandbox.upstash.sandbox import UpstashSandbox
from ironworks.sandbox.upstash.service import Service
from ironworks.sandbox.upstash.shown import refuse, show

CAN: frozenset[Capability] = frozenset(
    {"create", "pause", "usage", "live_snapshot", "network_policy", "headers", "detached"}
)
FOLDERS = ("/work", "/home/agent", "/run/ironworks")
PREPARE = """
find /tmp -mindepth 1 -delete 2>/dev/null
set -- {folders}
sudo mkdir -p "$@" && sudo chown $(id -u):$(id -g) "$@" && sudo chmod u+rwx "$@"
"""
AWAKE = frozenset({"creating", "idle", "running", "resuming"})
STRANGE_S = 3600
LIMITS = ("cpus", "memory_bytes", "pids", "disk_bytes")


class UpstashBackend:
    """`SandboxBackend` on Upstash Box. One per state directory, used from one event loop."""

    def __init__(
        self, root: Path, *, runtime: str = "", size: str = "small", base_url: str = "", api_key: str = ""
    ) -> None:
        """`root` holds the record of what is ours; `runtime` and `size` are the service's words."""
        self._root = root.absolute()
        self._tag = tag_of(self._root).removeprefix("ironworks-")
        self._config = {"size": size} | ({"runtime": runtime} if runtime else {})
        self._account = {"base_url": base_url, "api_key": api_key}
        self._running: dict[str, UpstashSandbox] = {}

    @cached_property
    def _service(self) -> Service:
        return Service(f"iw-{self._tag}", **self._account)

    @cached_property
    def _record(self) -> Record:
        return Record(self._root / "boxes.json")

    def capabilities(self) -> frozenset[Capability]:
        try:
            _ = self._service
        except IronworksError:
            return frozenset()
        return CAN

    def doctor(self) -> list[HostCheck]:
        try:
            service = self._service
            with ThreadPoolExecutor(1) as thread:  # the caller may be in a loop of its own
                count = len(thread.submit(asyncio.run, service.boxes()).result())
        except IronworksError as error:
            return [HostCheck(name="service", ok=False, detail=error.message, fix=error.hint)]
        return [HostCheck(name="service", ok=True, detail=f"Upstash Box answers; {count} boxes are ours")]

    def content(self) -> str:
        return str(self._config.get("runtime", ""))

    async def create(self, spec: SandboxSpec) -> UpstashSandbox:
        checked(spec.name)
        _refuse(spec)
        crash_point("sandbox.before_create")
        await self._stop(spec.name)
        woken = await self._woken(spec)
        box = woken or await self._made(spec)
        sandbox = UpstashSandbox(spec.name, box, self._service, environment() | spec.env)
        self._running[spec.name] = sandbox
        try:
            if woken is None or not await sandbox.running():
                await self._service.call(lambda: self._prepare(box, spec))
                await sandbox.kill_all()
                await show(sandbox, spec.mounts)
        except BaseException:
            await self._stop(spec.name)
            raise
        crash_point("sandbox.after_create")
        return sandbox

    async def snapshot(self, sandbox: Sandbox, name: str, *, live: bool = False) -> str:
        checked(name)
        if live and (sandbox.name not in self._running or self._running[sandbox.name].stopped):
            raise MissingError(f"there is no live sandbox {sandbox.name!r} to take a snapshot of")
        crash_point("sandbox.before_snapshot")
        if name not in self._record.read().snapshots:
            await self._take(sandbox.name, name, live=live)
        if not live:
            await self._stop(sandbox.name)
        crash_point("sandbox.after_snapshot")
        return name

    async def _take(self, name: str, snapshot: str, *, live: bool) -> None:
        if (mine := self._record.read().boxes.get(name)) is None:
            raise MissingError(f"there is no disk {name!r}")
        running = self._running.get(name)
        if running is None or running.stopped:
            async with contextlib.aclosing(await self._service.open(mine.id)) as box:
                taken = await self._service.snapshot(box, snapshot)
        elif live:
            async with running.held():
                taken = await self._service.snapshot(running.box, snapshot)
        else:
            await running.kill_all()
            taken = await self._service.snapshot(running.box, snapshot)
        now = datetime.now(UTC)
        kept = Kept(id=taken.id, below=mine.below, created_at=now, size_bytes=taken.size_bytes)
        self._record.put_snapshot(snapshot, kept)
        if not live:
            self._record.put_box(name, mine.model_copy(update={"below": snapshot}))

    async def has_snapshot(self, name: str) -> bool:
        return checked(name) in self._record.read().snapshots

    async def has_disk(self, name: str) -> bool:
        return checked(name) in self._record.read().boxes

    async def sandboxes(self) -> list[SandboxInfo]:
        there = {box.id: box.status for box in await self._service.boxes()}
        return [
            SandboxInfo(
                name=name,
                snapshot=kept.below,
                running=there.get(kept.id) in AWAKE,
                disk_bytes=0,
                created_at=kept.created_at,
            )
            for name, kept in sorted(self._record.read().boxes.items())
            if kept.id in there or not kept.id
        ]

    async def snapshots(self) -> list[SnapshotInfo]:
        return [
            SnapshotInfo(name=name, below=kept.below, disk_bytes=kept.size_bytes, created_at=kept.created_at)
            for name, kept in sorted(self._record.read().snapshots.items())
        ]

    async def remove_snapshot(self, name: str) -> None:
        tables = self._record.read()
        kept = tables.snapshots.get(checked(name))
        if kept is None:
            return
        both = (tables.boxes, tables.snapshots)
        users = sorted(user for table in both for user, each in table.items() if each.below == name)
        if users:
            raise BusyError(f"snapshot {name!r} is in use: {', '.join(users[:5])} rests on it")
        await self._service.delete_snapshot(kept.id)
        self._record.put_snapshot(name, None)

    async def destroy(self, name: str) -> None:
        checked(name)
        crash_point("sandbox.before_destroy")
        sandbox = self._running.pop(name, None)
        if sandbox is not None:
            await sandbox.abandon()
        kept = self._record.read().boxes.get(name)
        if kept is not None:
            await self._service.delete(kept.id or self._box_name(name))
            self._record.put_box(name, None)
        crash_point("sandbox.after_destroy")

    async def collect(self, keep: frozenset[str]) -> int:
        """Also boxes with our label that are in no record, once nobody can be about to write it."""
        in_use = {name for name, sandbox in self._running.items() if not sandbox.stopped}
        names = [name for name in self._record.read().boxes if name not in keep | in_use]
        for name in names:
            await self.destroy(name)
        known = {kept.id for kept in self._record.read().boxes.values()}
        before_s = time.time() - STRANGE_S
        boxes = await self._service.boxes()
        strangers = [box.id for box in boxes if box.id not in known and box.created_at < before_s]
        for id in strangers:
            await self._service.delete(id)
        return len(names) + len(strangers)

    async def close(self) -> None:
        results = await asyncio.gather(*map(self._stop, list(self._running)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _woken(self, spec: SandboxSpec) -> Any | None:
        """The box of that name, if there is one, awake."""
        kept = self._record.read().boxes.get(spec.name)
        if kept is None:
            return None
        try:
            box = await self._service.open(kept.id or self._box_name(spec.name))
        except MissingError:
            self._record.put_box(spec.name, None)
            return None
        self._record.put_box(spec.name, kept.model_copy(update={"id": box.id}))
        try:
            await self._service.ready(box)
            if await self._service.status(box) == "paused":
                await self._service.call(box.resume)
                await self._service.ready(box)
        except BaseException:
            await box.aclose()
            raise
        return box

    async def _made(self, spec: SandboxSpec) -> Any:
        snapshot = None
        if spec.snapshot is not None:
            known = self._record.read().snapshots
            if spec.snapshot not in known:
                raise MissingError(f"there is no snapshot {spec.snapshot!r}")
            snapshot = known[spec.snapshot].id
        config: dict[str, Any] = {**self._config, "network_policy": policy(spec)}
        if spec.image:
            config["runtime"] = spec.image
        if spec.headers:
            config["attach_headers"] = {host: dict(headers) for host, headers in spec.headers.items()}
        kept = Kept(id="", below=spec.snapshot, created_at=datetime.now(UTC))
        self._record.put_box(spec.name, kept)
        try:
            box = await self._service.make(self._box_name(spec.name), snapshot, config)
        except (ConfigError, MissingError, SandboxError):
            self._record.put_box(spec.name, None)
            raise
        self._record.put_box(spec.name, kept.model_copy(update={"id": box.id}))
        await self._service.ready(box)
        return box

    def _box_name(self, name: str) -> str:
        return f"iw-{self._tag}-{name}"

    async def _prepare(self, box: Any, spec: SandboxSpec) -> None:
        """The folders that every sandbox has, and those to copy into, its own."""
        folders = shlex.join([*FOLDERS, *(mount.inside for mount in spec.mounts)])
        run = await box.exec.command(PREPARE.format(folders=folders))
        if run.exit_code != 0:
            raise SandboxError(f"a box cannot be made a sandbox: {run.result}")

    async def _stop(self, name: str) -> None:
        if name in self._running:
            with contextlib.suppress(MissingError):
                await self._running.pop(name).stop()


def _refuse(spec: SandboxSpec) -> None:
    """Never make a sandbox that lacks what was asked for."""
    if limits := [name for name in LIMITS if getattr(spec, name) is not None]:
        raise CapabilityError(f"a box has the limits of its size: {', '.join(limits)} cannot be set")
    refuse(spec.mounts)
    if spec.transparent:
        raise CapabilityError("a box has the network that its policy lets through, and no gateway")


def policy(spec: SandboxSpec) -> dict[str, object]:
    return {"mode": "custom", "allowed_domains": list(spec.hosts)} if spec.hosts else {"mode": "deny-all"}


def environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/home/agent",
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
    }
