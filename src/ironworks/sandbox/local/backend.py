"""Sandboxes on this Linux host: namespaces and mounts by bubblewrap, our own pid 1 inside."""

import asyncio
import contextlib
import resource
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import CapabilityError, IronworksError, SandboxError
from ironworks.core.ports import Capability, HostCheck, Sandbox, SandboxInfo, SandboxSpec, SnapshotInfo
from ironworks.sandbox.local.boot import Launcher, isolation, overlay
from ironworks.sandbox.local.cgroup import Cgroups, tag_of
from ironworks.sandbox.local.disk import AREAS, Disk, DiskStore, checked
from ironworks.sandbox.local.doctor import examine, opens_ways, shows_overlays
from ironworks.sandbox.local.sandbox import LocalSandbox
from ironworks.sandbox.local.view import View, mount_arguments


class LocalBackend:
    """`SandboxBackend` on bubblewrap. One per state directory, used from one event loop."""

    def __init__(self, root: Path) -> None:
        """`root` is made where it is missing; nothing else is touched before the first `create`."""
        self._root = root.absolute()
        self._disks = DiskStore(self._root)
        self._view = View(self._root / "etc")
        self._cgroups = Cgroups(tag_of(self._root), self._disks.in_use)
        self._launcher = Launcher(self._root / "pid1")
        self._running: dict[str, LocalSandbox] = {}

    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @cached_property
    def _capabilities(self) -> frozenset[Capability]:
        if not shows_overlays(self._root):
            return frozenset()
        transparent: set[Capability] = {"transparent"} if opens_ways() else set()
        return (
            self._cgroups.capabilities()
            | transparent
            | {
                "create",
                "pause",
                "usage",
                "live_snapshot",
                "disk_limit",
                "mounts",
                "listener",
            }
        )

    def doctor(self) -> list[HostCheck]:
        """What this host lacks, found out by trying, each with its fix. Blocks for a moment."""
        return examine(self._root, self._cgroups.capabilities())

    def content(self) -> str:
        return self._view.content()

    async def create(self, spec: SandboxSpec) -> LocalSandbox:
        checked(spec.name)
        self._refuse(spec)
        crash_point("sandbox.before_create")
        starting = asyncio.ensure_future(self._create(spec))
        try:
            sandbox = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(IronworksError):
                await (await starting).stop()
            raise
        crash_point("sandbox.after_create")
        return sandbox

    async def snapshot(self, sandbox: Sandbox, name: str, *, live: bool = False) -> str:
        checked(name)
        if not live:
            await sandbox.stop()
            self._running.pop(sandbox.name, None)
        crash_point("sandbox.before_snapshot")
        if live:
            await self._copy(sandbox, name)
        else:
            await asyncio.to_thread(self._disks.freeze, sandbox.name, name)
        crash_point("sandbox.after_snapshot")
        return name

    async def _copy(self, sandbox: Sandbox, name: str) -> None:
        if (running := self._running.get(sandbox.name)) is None:
            raise SandboxError(f"there is no live sandbox {sandbox.name!r} to take a snapshot of")
        async with running.held():
            copying = asyncio.ensure_future(asyncio.to_thread(self._disks.copy, sandbox.name, name))
            try:
                await asyncio.shield(copying)
            except asyncio.CancelledError:
                await copying  # nothing may move before it is done
                raise

    async def has_snapshot(self, name: str) -> bool:
        return self._disks.has_snapshot(name)

    async def has_disk(self, name: str) -> bool:
        return self._disks.has_disk(name)

    async def sandboxes(self) -> list[SandboxInfo]:
        return await asyncio.to_thread(self._disks.disks)

    async def snapshots(self) -> list[SnapshotInfo]:
        return await asyncio.to_thread(self._disks.snapshots)

    async def remove_snapshot(self, name: str) -> None:
        await asyncio.to_thread(self._disks.remove_snapshot, name)

    async def destroy(self, name: str) -> None:
        checked(name)
        crash_point("sandbox.before_destroy")
        await self._stop(name)
        await asyncio.to_thread(self._disks.remove, name)
        crash_point("sandbox.after_destroy")

    async def collect(self, keep: frozenset[str]) -> int:
        in_use = {name for name, sandbox in self._running.items() if not sandbox.stopped}
        names = [name for name in self._disks.disk_names() if name not in keep | in_use]
        for name in names:
            await self.destroy(name)
        await asyncio.to_thread(self._disks.empty_trash)
        return len(names)

    async def close(self) -> None:
        stops = [self._stop(name) for name in list(self._running)]
        results = await asyncio.gather(*stops, return_exceptions=True)
        self._launcher.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _refuse(self, spec: SandboxSpec) -> None:
        """Never make a sandbox that lacks what was asked for."""
        lacking = {
            "image": "start from an image: it shows the host's folders",
        }
        if spec.transparent and "transparent" not in self._capabilities:
            raise CapabilityError("this host does not let a sandbox catch programs that know no proxy")
        for field, what in lacking.items():
            if getattr(spec, field):
                raise CapabilityError(f"the local sandbox cannot {what}")

    async def _create(self, spec: SandboxSpec) -> LocalSandbox:
        await self._stop(spec.name)
        self._disks.need_room()
        disk = await asyncio.to_thread(self._disks.open, spec.name, spec.snapshot)
        try:
            arguments = await asyncio.to_thread(lambda: list(self._arguments(spec, disk)))
            sandbox = await self._boot(spec, disk, arguments)
        finally:
            # From here on the lock lives exactly as long as the sandbox, which holds the other copy.
            disk.unlock()
        self._running[spec.name] = sandbox
        return sandbox

    async def _boot(self, spec: SandboxSpec, disk: Disk, arguments: list[str]) -> LocalSandbox:
        group = self._cgroups.group(spec)
        options = ("transparent",) if spec.transparent else ()
        try:
            booted = await self._launcher.boot(arguments, disk.held, *options)
        except BaseException:
            group.remove()
            raise
        env = self._view.environment() | spec.env
        sandbox = LocalSandbox(disk, env, booted, group, disk_bytes=spec.disk_bytes)
        try:
            group.add(booted.pid)
            if spec.disk_bytes is not None:
                # No single file is ever larger: most of what fills a disk ends at once and without a watch.
                resource.prlimit(booted.pid, resource.RLIMIT_FSIZE, (spec.disk_bytes, spec.disk_bytes))
            disk.record(booted.pid)
        except BaseException:
            await sandbox.stop()
            raise
        return sandbox

    def _arguments(self, spec: SandboxSpec, disk: Disk) -> Iterator[str]:
        yield from isolation(transparent=spec.transparent, memory_bytes=spec.memory_bytes)
        yield from self._view.arguments(names=spec.transparent)
        for area, inside in AREAS:
            layers = self._disks.layers(disk, area)
            yield from overlay(layers, disk.upper(area), disk.scratch(area), inside)
        yield from mount_arguments(spec.mounts)
        yield from ("--remount-ro", "/", "--chdir", "/")

    async def _stop(self, name: str) -> None:
        if name in self._running:
            await self._running.pop(name).stop()
