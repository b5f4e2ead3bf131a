"""The host's end of a sandbox's control socket: requests out with descriptors, answers back by number."""

import array
import asyncio
import contextlib
import itertools
import json
import os
import socket
import struct

from ironworks.core.errors import SandboxError
from ironworks.core.ports import Ways

SEND_TIMEOUT_S = 10.0
MESSAGE_BYTES = 65536
MAX_FDS = 4
CREDENTIALS = struct.Struct("3i")
Answer = dict[str, object]


class Channel:
    """One connected SEQPACKET socket to a sandbox's pid 1. Used from the event loop that made it."""

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        # The kernel then names the sender: the host's pid of the sandbox's pid 1.
        control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self.ready: asyncio.Future[tuple[socket.socket, int]] = self._loop.create_future()
        """The sandbox's listener and the pid of its pid 1, or SandboxError."""
        self.ways: Ways | None = None
        """Set with `ready`, when pid 1 passes more than the one listener out."""
        self.closed = False
        self._loop.add_reader(control.fileno(), self._read)

    async def request(self, op: str, *, fds: tuple[int, ...] = ()) -> "asyncio.Future[Answer]":
        """Send a request, with descriptors that may be closed afterwards; the future is its answer."""
        number = next(self._numbers)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        try:
            await self._send(f"{op} {number}".encode(), fds)
        except BaseException:
            future.cancel()
            raise
        return future

    async def call(self, op: str, *, timeout_s: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_s):
                return await (await self.request(op))
        except TimeoutError:
            raise SandboxError(f"the sandbox did not answer `{op}` within {timeout_s:g} s") from None

    def kill(self, answer: "asyncio.Future[Answer]") -> None:
        """End the command whose answer this future is; nothing when it has ended already."""
        target = next((number for number, waiting in self._waiting.items() if waiting is answer), None)
        if target is not None:
            with contextlib.suppress(OSError):
                self._control.send(f"kill {next(self._numbers)} {target}".encode())

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        ended = SandboxError("the sandbox has ended")
        if not self.ready.done():
            self.ready.set_exception(ended)
            self.ready.exception()  # seen: nobody has to wait for it
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(ended)
                future.exception()

    async def _send(self, message: bytes, fds: tuple[int, ...]) -> None:
        deadline_s = self._loop.time() + SEND_TIMEOUT_S
        while not self.closed and self._loop.time() < deadline_s:
            try:
                socket.send_fds(self._control, [message], fds)
                return
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except OSError:
                break
        raise SandboxError("the sandbox has ended, or takes no more requests")

    def _read(self) -> None:
        try:
            data, fds, pid = receive(self._control)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        try:
            self._take(json.loads(data), fds, pid)
        except (ValueError, LookupError, TypeError, RecursionError):
            # Empty: pid 1 is gone. Anything else that it would not say: it is not ours any more.
            self.close()
        for fd in fds:
            os.close(fd)

    def _take(self, answer: Answer, fds: list[int], pid: int) -> None:
        if "ready" in answer:
            if not self.ready.done():
                if len(fds) not in {1, MAX_FDS}:
                    raise ValueError("not the sockets of a sandbox")
                listener, *ways = (socket.socket(fileno=os.dup(fd)) for fd in fds)
                self.ways = Ways(*ways) if ways else None
                self.ready.set_result((listener, pid))
            return
        future = self._waiting.get(int(str(answer["id"])))
        if future is not None and not future.done():
            future.set_result(answer)


def receive(control: socket.socket) -> tuple[bytes, list[int], int]:
    """One message, the descriptors beside it, and the sender's pid as this process sees it."""
    size = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize) + socket.CMSG_SPACE(CREDENTIALS.size)
    data, ancillary, _, _ = control.recvmsg(MESSAGE_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    fds, pid = array.array("i"), 0
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload)
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = CREDENTIALS.unpack(payload)[0]
    return data, list(fds), pid
