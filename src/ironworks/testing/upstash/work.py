"""Routes that run commands: whole answers, streams of raw bytes with an exit marker, and framed sessions."""

import asyncio
import base64
import binascii
import contextlib
import itertools
import json
import os
import shlex
import termios
import time
from collections.abc import AsyncIterator
from typing import Any

from ironworks.core.errors import SandboxError
from ironworks.testing.upstash.http import UNUSABLE, WebSocket
from ironworks.testing.upstash.jail import WORKSPACE, Ending, Jail, Process, read_some
from ironworks.testing.upstash.service import BOX, ApiError, Box, Call, Reply, Route, route
from ironworks.testing.upstash.thread import in_thread

SIGNALS = frozenset({"TERM", "KILL", "INT", "HUP", "TSTP", "QUIT", "USR1", "USR2"})
GRACE_S = 5.0
NUMBERS = itertools.count(1)
PROGRAMS = {"python": ["python3", "-c"], "js": ["node", "-e"], "ts": ["node", "-e"]}


def place(folder: object) -> str:
    """A folder as the API takes it: relative to the workspace, or absolute."""
    return os.path.normpath(os.path.join(WORKSPACE, str(folder or "")))  # noqa: PTH118


def command(call: Call) -> list[str]:
    argv = call.request.json().get("command")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise ApiError(400, "command must be a list of words")
    return argv


def code(call: Call) -> list[str]:
    program = PROGRAMS.get(call.text("language"))
    if program is None:
        raise ApiError(400, "unknown language")
    limit_ms = call.request.json().get("timeout")
    limit = ["timeout", "-k", "1", f"{float(limit_ms) / 1000:.3f}"] if limit_ms else []
    return [*limit, *program, call.text("code")]


async def execute(call: Call, argv: list[str]) -> Reply:
    box = call.box
    started_s = time.monotonic()
    async with box.work() as jail:
        outcome = await jail.run(argv, box.environment(), place(call.request.json().get("folder")))
    box.record("shell", shlex.join(argv), outcome.ending, (time.monotonic() - started_s) * 1000)
    answer: dict[str, Any] = {
        "exit_code": outcome.ending.exit_code,
        "output": outcome.stdout.decode("utf-8", "replace"),
    }
    if outcome.stderr:
        answer["error"] = outcome.stderr.decode("utf-8", "replace")
    return Reply(answer)


async def exec_whole(call: Call) -> Reply:
    return await execute(call, command(call))


async def code_whole(call: Call) -> Reply:
    return await execute(call, code(call))


async def exec_stream(call: Call) -> Reply:
    return Reply(
        stream=streamed(call.box, command(call), place(call.request.json().get("folder"))), headers=STREAM
    )


async def code_stream(call: Call) -> Reply:
    return Reply(
        stream=streamed(call.box, code(call), place(call.request.json().get("folder"))), headers=STREAM
    )


STREAM = {"content-type": "text/event-stream"}


async def streamed(box: Box, argv: list[str], folder: str) -> AsyncIterator[bytes]:
    """Output as it comes, both streams in one; then the exit marker, which output can forge."""
    started_s = time.monotonic()
    async with box.work() as jail:
        process = await jail.spawn(["sh", "-c", 'exec "$@" 2>&1', "sh", *argv], box.environment(), folder)
        try:
            while data := await read_some(process, process.stdout):
                yield data
            ending = await process.ended
        except BaseException:
            await jail.signal(process.pid, "KILL")
            raise
        finally:
            process.close()
    box.record("shell", shlex.join(argv), ending, (time.monotonic() - started_s) * 1000)
    marker = {"exit_code": ending.exit_code, "cpu_ns": ending.cpu_ns}
    yield b"event: exit\ndata: " + json.dumps(marker).encode() + b"\n\n"


async def session(call: Call) -> None:
    """A framed session over a WebSocket; the process tree ends with the connection."""
    box = call.box
    if not call.request.is_websocket:
        raise ApiError(400, "a WebSocket is needed")
    if box.status not in {"idle", "running", "paused"}:
        raise ApiError(409, f"the box is {box.status}")
    cut = call.service.faults.take("WS", call.request.path)
    socket = await call.connection.upgrade(call.request)
    first = parsed(await socket.receive())
    try:
        async with box.work() as jail:
            await Session(socket, jail, box, cut is not None).run(first)
    except (SandboxError, ApiError, *UNUSABLE) as error:
        with contextlib.suppress(OSError):
            await socket.send({"type": "error", "message": str(error)})
    if cut:
        call.connection.reset()
    await socket.close()
    raise ConnectionAbortedError("the session has ended")


def parsed(text: str | None) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text or "")
        if isinstance(value, dict):
            return value
    return {}


class Session:
    """One command on one WebSocket. `cut`: the connection breaks after its first output."""

    def __init__(self, socket: WebSocket, jail: Jail, box: Box, cut: bool) -> None:
        self._socket = socket
        self._jail = jail
        self._box = box
        self._cut = cut
        self._ending: asyncio.Task[None] | None = None

    async def run(self, start: dict[str, Any]) -> None:
        argv = start.get("argv") or ["bash", "-lc", start.get("cmd")]
        if start.get("type") != "start" or not all(isinstance(word, str) for word in argv):
            raise ApiError(400, "the first frame must be a start with cmd or argv")
        words = [word.partition("=") for word in start.get("env") or [] if isinstance(word, str)]
        env = self._box.environment({name: value for name, _, value in words})
        size = (int(start.get("rows") or 24), int(start.get("cols") or 80)) if start.get("tty") else None
        if size:
            env["TERM"] = "xterm-256color"
        started_s = time.monotonic()
        process = await self._jail.spawn(argv, env, place(start.get("cwd")), stdin=None, terminal=size)
        ending: Ending | None = None
        try:
            await self._socket.send(
                {"type": "started", "pid": process.pid, "execId": f"exec-{next(NUMBERS)}"}
            )
            ending = await self._to_the_end(process)
        finally:
            if ending is None:
                await self._jail.signal(process.pid, "KILL")
            if self._ending:
                self._ending.cancel()
            process.close()
            ending = ending or Ending(137, 0, 0)
            self._box.record("shell", shlex.join(argv), ending, (time.monotonic() - started_s) * 1000)

    async def _to_the_end(self, process: Process) -> Ending | None:
        """None when the client went away before the command ended."""
        pumps = [asyncio.ensure_future(self._pump(process, "stdout", process.stdout))]
        if process.stderr:
            pumps.append(asyncio.ensure_future(self._pump(process, "stderr", process.stderr)))
        obeying = asyncio.ensure_future(self._obey(process))
        all_said = asyncio.gather(*pumps)
        either: list[asyncio.Future[Any]] = [all_said, obeying]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not all_said.done():
                return None
            all_said.result()
            ending = await process.ended
            await self._socket.send({"type": "exit", "code": ending.exit_code})
            return ending
        except OSError:
            return None
        finally:
            obeying.cancel()
            all_said.cancel()
            await asyncio.gather(obeying, all_said, return_exceptions=True)

    async def _pump(self, process: Process, kind: str, reader: asyncio.StreamReader) -> None:
        while data := await read_some(process, reader):
            await self._socket.send({"type": kind, "data": base64.b64encode(data).decode()})
            if self._cut:
                raise ConnectionAbortedError("cut on demand")

    async def _obey(self, process: Process) -> None:
        while (text := await self._socket.receive()) is not None:
            frame = parsed(text)
            kind = frame.get("type")
            if kind == "stdin" and process.stdin:
                with contextlib.suppress(binascii.Error):
                    process.stdin.write(base64.b64decode(str(frame.get("data") or "")))
            elif kind == "stdin_close" and process.stdin:
                self._end_stdin(process, process.stdin)
            elif kind == "resize" and process.terminal is not None:
                size = (int(frame.get("rows") or 24), int(frame.get("cols") or 80))
                await in_thread(resize, process.terminal, size)
            elif kind == "signal" and frame.get("signal") in SIGNALS:
                await self._jail.signal(process.pid, frame["signal"])
            elif kind == "terminate" and self._ending is None:
                grace_s = float(frame.get("graceMs") or GRACE_S * 1000) / 1000
                self._ending = asyncio.ensure_future(self._terminate(process, grace_s))

    def _end_stdin(self, process: Process, stdin: asyncio.WriteTransport) -> None:
        if process.terminal is not None:
            stdin.write(b"\x04")  # Closing our end would hang up the terminal.
        else:
            stdin.close()

    async def _terminate(self, process: Process, grace_s: float) -> None:
        await self._jail.signal(process.pid, "TERM")
        await asyncio.wait([process.ended], timeout=grace_s)
        if not process.ended.done():
            await self._jail.signal(process.pid, "KILL")


def resize(terminal: int, size: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetwinsize(terminal, size)


ROUTES: list[Route] = [
    route("POST", BOX + "/exec", exec_whole),
    route("POST", BOX + "/code", code_whole),
    route("POST", BOX + "/exec-stream", exec_stream),
    route("POST", BOX + "/code-stream", code_stream),
    route("GET", BOX + "/exec-session", session),
]
