"""How a container becomes a sandbox: what the engine is told, and who must call back first."""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.core.errors import CapabilityError, RefusedError, SandboxError
from ironworks.core.ports import GATEWAY_PORT, Mount, SandboxSpec
from ironworks.sandbox import pid1
from ironworks.sandbox.channel import Channel
from ironworks.sandbox.docker import entry
from ironworks.sandbox.docker.engine import Engine, owner
from ironworks.sandbox.local.boot import in_memory
from ironworks.sandbox.local.seccomp import seccomp_filter

BOOT_TIMEOUT_S = 60.0
POLL_S = 0.25
INSIDE = "/.ironworks"
"""Where a container sees the folder of its rendezvous, read-only."""
COMMAND = ["python3", "-I", "-S", f"{INSIDE}/entry.py", INSIDE, str(GATEWAY_PORT)]
OWN_FOLDERS = ("/work", "/home/agent")
MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys",
)  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger")


class Booted(NamedTuple):
    """A container whose pid 1 answers."""

    channel: Channel
    listener: socket.socket


class Rendezvous:
    """The folder that one container sees of the host: where to call, what to become."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self) -> None:
        filter = seccomp_filter()
        if filter is None:
            raise CapabilityError(f"no system call filter for {os.uname().machine} processors")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)
        for module in (entry, pid1):
            source = Path(module.__file__ or "")
            _write(self._folder / source.name, source.read_bytes())
        _write(self._folder / "filter", filter)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def mount(self) -> dict[str, Any]:
        return shown(Mount(host=str(self._folder), inside=INSIDE))

    @contextlib.contextmanager
    def listening(self) -> Iterator[socket.socket]:
        """The place to call, for as long as a call is expected; commands inside never see it."""
        path = self._folder / "control"
        path.unlink(missing_ok=True)
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(f"/proc/self/fd/{folder}/control")
                path.chmod(0o666)  # of what is inside this container only
                listener.listen(1)
                listener.setblocking(False)
                yield listener
        finally:
            path.unlink(missing_ok=True)
            os.close(folder)


def host_config(spec: SandboxSpec, rendezvous: Rendezvous) -> dict[str, Any]:
    """No network, no privilege, and the limits asked for."""
    sizes = in_memory(spec.memory_bytes)
    uid, gid = owner().split(":")
    places = {"/tmp": (sizes.tmp, "1777"), "/run": (sizes.run, "755")}
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "Init": False,
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no"},
        "ShmSize": sizes.shm,
        "Tmpfs": {
            at: f"rw,exec,nosuid,nodev,size={size},mode={mode},uid={uid},gid={gid}"
            for at, (size, mode) in places.items()
        },
        "MaskedPaths": list(MASKED),
        "ReadonlyPaths": list(READ_ONLY),
        "Mounts": [rendezvous.mount, *(shown(mount) for mount in spec.mounts)],
    }
    if spec.memory_bytes is not None:
        config |= {"Memory": spec.memory_bytes, "MemorySwap": spec.memory_bytes}
    if spec.pids is not None:
        config["PidsLimit"] = spec.pids
    if spec.cpus is not None:
        config["NanoCpus"] = int(spec.cpus * 1e9)
    return config


def shown(mount: Mount) -> dict[str, Any]:
    if not (mount.host.startswith("/") and mount.inside.startswith("/")) or mount.inside == "/":
        raise RefusedError(f"a mount needs two absolute paths: {mount.host!r} at {mount.inside!r}")
    return {"Type": "bind", "Source": mount.host, "Target": mount.inside, "ReadOnly": True}


async def boot(engine: Engine, name: str, rendezvous: Rendezvous) -> Booted:
    """Start the container and wait for its call. SandboxError says why none came."""
    with rendezvous.listening() as listener:
        await asyncio.to_thread(engine.start, name)
        control = await _call(engine, name, listener)
    channel = Channel(control)
    try:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            listener, _ = await channel.ready
    except (SandboxError, TimeoutError):
        channel.close()
        raise await _failed(engine, name) from None
    return Booted(channel, listener)


async def _call(engine: Engine, name: str, listener: socket.socket) -> socket.socket:
    loop = asyncio.get_running_loop()
    calling = asyncio.ensure_future(loop.sock_accept(listener))
    deadline_s = loop.time() + BOOT_TIMEOUT_S
    try:
        while loop.time() < deadline_s:
            done, _ = await asyncio.wait([calling], timeout=POLL_S)
            if done:
                return calling.result()[0]
            found = await asyncio.to_thread(engine.container, name)
            if found is None or not found["State"]["Running"]:
                break
    finally:
        calling.cancel()
    raise await _failed(engine, name)


async def _failed(engine: Engine, name: str) -> SandboxError:
    said = await asyncio.to_thread(engine.last_words, name)
    await asyncio.to_thread(engine.end, name)
    return SandboxError(f"a container does not become a sandbox: {said}", hint="its image needs python3")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)
