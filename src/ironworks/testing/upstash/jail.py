"""Where a box's processes live: bubblewrap around the box's own root folder, `init.py` as its pid 1."""

import array
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.core.errors import SandboxError
from ironworks.sandbox.local.boot import find_bwrap
from ironworks.sandbox.local.view import ETC, authorities, system_arguments, toolchains
from ironworks.sandbox.stream import memory_file
from ironworks.testing.upstash import files, init
from ironworks.testing.upstash.thread import in_thread

WORKSPACE = "/workspace/home"
HOME = "/home/boxuser"
TOOLS = "/opt/box/bin"
PROXY_PORT = 3128
USER_ID = "1000"
PYTHON = "/usr/bin/python3"
READY_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0
GRACE_S = 0.3
PIPE_LIMIT = 1 << 18
PATHS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
NOBODY = "nobody:x:65534:65534:nobody:/:/bin/false\n"
MADE = {
    "etc/passwd": f"boxuser:x:{USER_ID}:{USER_ID}:boxuser:{HOME}:/bin/bash\n{NOBODY}",
    "etc/group": f"boxuser:x:{USER_ID}:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
SUDO = """#!/bin/sh
# Enough of sudo for a box: the root folder is open to the one user while the command runs.
while :; do case "$1" in -*) shift ;; *) break ;; esac; done
chmod u+w /; "$@"; status=$?; chmod u-w /; exit $status
"""


class Ending(NamedTuple):
    """How a command ended. A signal's number shows as 128 + number, as in a shell."""

    exit_code: int
    cpu_ns: int
    memory_peak_bytes: int


class Outcome(NamedTuple):
    stdout: bytes
    stderr: bytes
    ending: Ending


class Process:
    """One running command. `stderr` is None on a terminal; `stdin` is None when nothing is to be written."""

    def __init__(
        self,
        pid: int,
        ended: "asyncio.Future[Ending]",
        stdin: asyncio.WriteTransport | None,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader | None,
        terminal: int | None,
    ) -> None:
        self.pid = pid
        self.ended = ended
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.terminal = terminal
        self.transports: list[asyncio.BaseTransport] = []

    def close(self) -> None:
        if self.stdin:
            self.stdin.abort()  # Nobody will read what may still be waiting to be written.
        for transport in self.transports:
            transport.close()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None


def make_root(root: Path) -> None:
    """The box's own part of its file system: everything in it is its disk."""
    for name in ("workspace/home", "home/boxuser", "tmp", "etc", "opt/box/bin", "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in MADE.items():
        (root / name).write_text(text, "utf-8")
    (root / "tmp").chmod(0o1777)
    sudo = root / TOOLS.lstrip("/") / "sudo"
    sudo.write_text(SUDO, "utf-8")
    sudo.chmod(0o755)
    root.chmod(0o555)


def copy_root(source: Path, target: Path) -> None:
    """A copy that shares blocks where the file system can; links are copied, never followed."""
    copied = subprocess.run(
        ["cp", "-a", "--reflink=auto", "--", str(source), str(target)], capture_output=True, check=False
    )
    if copied.returncode:
        said = copied.stderr.decode("utf-8", "replace").strip()
        raise SandboxError(f"a box's disk cannot be copied: {said[:300]}")


def basic_environment() -> dict[str, str]:
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    local = "127.0.0.1,localhost"
    return {
        "PATH": ":".join([TOOLS, *(f"{root}/bin" for root in toolchains()), *PATHS]),
        "HOME": HOME,
        "USER": "boxuser",
        "SHELL": "/bin/bash" if shutil.which("bash") else "/bin/sh",
        "LANG": "C.UTF-8",
        "NO_PROXY": local,
        "no_proxy": local,
        **dict.fromkeys(names, proxy),
        **authorities(),
    }


def arguments(root: Path, name: str, mirrors: Mapping[str, Path]) -> Iterator[str]:
    """For bubblewrap. `mirrors`: where inside → folder of the host, writable."""
    yield from ("--unshare-user", "--unshare-all", "--uid", USER_ID, "--gid", USER_ID)
    yield from ("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--clearenv", "--hostname", name)
    yield from ("--bind", str(root), "/")
    yield from system_arguments()
    for entry in ETC:
        yield from ("--ro-bind-try", f"/etc/{entry}", f"/etc/{entry}")
    for place in toolchains():
        yield from ("--ro-bind", place, place)
    yield from (
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--tmpfs",
        "/dev/shm",
        "--tmpfs",
        "/run",
    )
    for module in (init, files):
        path = Path(str(module.__file__)).absolute()
        yield from ("--ro-bind", str(path), f"/run/box/{path.name}")
    for inside, host in mirrors.items():
        yield from ("--bind", str(host), inside)
    yield from ("--chdir", "/")


class Jail:
    """The living part of a box. Used from the event loop that started it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", control: socket.socket, listener: socket.socket
    ) -> None:
        self.listener = listener
        """Where the box's programs find their proxy, on the box's own loopback."""
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._endings: dict[int, asyncio.Future[Ending]] = {}
        self._loop.add_reader(control.fileno(), self._read)
        self.closed = False

    @classmethod
    async def start(cls, root: Path, name: str, mirrors: Mapping[str, Path]) -> "Jail":
        """SandboxError says why it cannot be."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as errors:
            inner = [PYTHON, "-I", "-S", "/run/box/init.py", str(theirs.fileno()), str(PROXY_PORT)]
            command = [find_bwrap(), *arguments(root, name, mirrors), "--", *inner]
            # From the thread of the event loop: the kernel ends the box when the thread that made it ends.
            process = subprocess.Popen(  # noqa: ASYNC220
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={},
                start_new_session=True,
            )
            theirs.close()
            ours.setblocking(False)
            try:
                listener = await asyncio.wait_for(first_message(ours), READY_TIMEOUT_S)
            except BaseException as error:
                ours.close()
                process.kill()
                await in_thread(process.wait)
                if not isinstance(error, (OSError, TimeoutError)):
                    raise
                errors.seek(0)
                said = errors.read(1000).decode("utf-8", "replace").strip()
                raise SandboxError(f"a box cannot be started: {said or 'it did not answer'}") from None
        return cls(process, ours, listener)

    async def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        *,
        stdin: bytes | None = b"",
        terminal: tuple[int, int] | None = None,
    ) -> Process:
        """Start a command. `stdin` None: it is written later. `terminal`: rows and columns of a real one."""
        task = json.dumps({"argv": list(argv), "env": dict(env), "cwd": cwd, "tty": terminal}).encode()
        if terminal:
            return await self._spawn_on_terminal(task)
        with contextlib.ExitStack() as stack:
            fds = [stack.enter_context(memory_file(task)).fileno()]
            write_in = -1
            if stdin is None:
                read_in, write_in = os.pipe2(os.O_CLOEXEC)
                stack.callback(os.close, read_in)
            else:
                read_in = stack.enter_context(memory_file(stdin)).fileno()
            fds.append(read_in)
            outlets = []
            for _ in range(2):
                outlet, inlet = os.pipe2(os.O_CLOEXEC)
                stack.callback(os.close, inlet)
                outlets.append(outlet)
                fds.append(inlet)
            pid, ended, _ = await self._begin(fds)
        writer = await self._writer(write_in) if write_in >= 0 else None
        stdout, out = await self._reader(outlets[0])
        stderr, err = await self._reader(outlets[1])
        process = Process(pid, ended, writer, stdout, stderr, None)
        process.transports += [out, err]
        return process

    async def _spawn_on_terminal(self, task: bytes) -> Process:
        with memory_file(task) as file:
            pid, ended, fds = await self._begin([file.fileno()])
        terminal = fds[0]
        writer = await self._writer(os.dup(terminal))
        stdout, out = await self._reader(os.dup(terminal))
        process = Process(pid, ended, writer, stdout, None, terminal)
        process.transports.append(out)
        return process

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, stdin: bytes = b""
    ) -> Outcome:
        """Start a command and collect it whole; killed when the awaiting task is cancelled."""
        process = await self.spawn(argv, env, cwd, stdin=stdin)
        assert process.stderr is not None
        try:
            streams = [
                asyncio.ensure_future(drain(process, reader)) for reader in (process.stdout, process.stderr)
            ]
            stdout, stderr = await asyncio.gather(*streams)
            return Outcome(stdout, stderr, await process.ended)
        except BaseException:
            await self.signal(process.pid, "KILL")
            raise
        finally:
            process.close()

    async def signal(self, pid: int, name: str) -> None:
        """To the whole tree of a command; nothing when the box has ended."""
        with contextlib.suppress(SandboxError):
            await self.call("signal", pid=pid, signal=name)

    async def call(self, op: str, **values: object) -> dict[str, Any]:
        answer, _ = await asyncio.wait_for(self._request({"op": op, **values}, []), CALL_TIMEOUT_S)
        return answer

    async def stop(self) -> None:
        """The kernel ends every process of the box with its pid 1."""
        self._close()
        try:
            await in_thread(self._process.wait, END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await in_thread(self._process.wait)

    async def _begin(self, fds: list[int]) -> tuple[int, "asyncio.Future[Ending]", list[int]]:
        number = next(self._numbers)
        ended: asyncio.Future[Ending] = self._loop.create_future()
        self._endings[number] = ended
        answer, outside = await self._request({"op": "start"}, fds, number)
        return int(answer["pid"]), ended, outside

    async def _request(
        self, message: dict[str, object], fds: list[int], number: int | None = None
    ) -> tuple[dict[str, Any], list[int]]:
        if self.closed:
            raise SandboxError("the box has stopped")
        number = next(self._numbers) if number is None else number
        future: asyncio.Future[tuple[dict[str, Any], list[int]]] = self._loop.create_future()
        self._answers[number] = future
        data = json.dumps({**message, "id": number}).encode()
        while True:
            try:
                socket.send_fds(self._control, [data], fds)
                break
            except BlockingIOError:
                await asyncio.sleep(0.002)
            except OSError:
                self._close()
                break
        return await future

    def _read(self) -> None:
        try:
            data, fds = receive(self._control)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._close()
            return
        message = json.loads(data)
        number = message["id"]
        if "status" in message:
            ended = self._endings.pop(number, None)
            code = os.waitstatus_to_exitcode(message["status"])
            if ended and not ended.done():
                ended.set_result(
                    Ending(code if code >= 0 else 128 - code, message["cpu_ns"], message["peak"])
                )
            return
        future = self._answers.pop(number, None)
        if future and not future.done():
            future.set_result((message, fds))

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self.listener.close()
        for ended in self._endings.values():
            if not ended.done():
                ended.set_result(Ending(137, 0, 0))
        for future in self._answers.values():
            if not future.done():
                future.set_exception(SandboxError("the box has stopped"))
                future.exception()

    async def _reader(self, fd: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
        reader = asyncio.StreamReader(limit=PIPE_LIMIT)
        pipe = os.fdopen(fd, "rb", buffering=0)
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return reader, transport

    async def _writer(self, fd: int) -> asyncio.WriteTransport:
        pipe = os.fdopen(fd, "wb", buffering=0)
        transport, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
        return transport


async def read_some(process: Process, reader: asyncio.StreamReader) -> bytes:
    """The next chunk; empty at the end, which is the command's even if a grandchild keeps the stream."""
    reading = asyncio.ensure_future(reader.read(PIPE_LIMIT))
    try:
        either: list[asyncio.Future[Any]] = [reading, process.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await asyncio.wait([reading], timeout=GRACE_S)
        # A terminal whose last user has gone says so with an error.
        with contextlib.suppress(OSError):
            return reading.result() if reading.done() else b""
        return b""
    finally:
        if not reading.done():
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


async def drain(process: Process, reader: asyncio.StreamReader) -> bytes:
    whole = bytearray()
    while data := await read_some(process, reader):
        whole += data
    return bytes(whole)


async def first_message(control: socket.socket) -> socket.socket:
    """The listener, once pid 1 is there; OSError when it ends before."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(control.fileno(), lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(control.fileno())
    data, fds = receive(control)
    if not data or not fds:
        raise ConnectionError("no pid 1")
    listener = socket.socket(fileno=fds[0])
    listener.setblocking(False)
    return listener


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    data, ancillary, _, _ = control.recvmsg(65536, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload)
    return data, list(fds)
