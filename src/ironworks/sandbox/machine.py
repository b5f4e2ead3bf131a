"""A sandbox that our pid 1 keeps, whatever launched it: commands and files go over its control socket."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ironworks.core.errors import MissingError, RefusedError, SandboxError
from ironworks.core.models import ExecResult
from ironworks.core.ports import WORK_DIR, OnOutput
from ironworks.sandbox.channel import Answer, Channel
from ironworks.sandbox.pid1 import MISSING
from ironworks.sandbox.stream import Stream, memory_file

CALL_TIMEOUT_S = 30.0
FILE_TIMEOUT_S = 300.0
END_TIMEOUT_S = 30.0
GRACE_S = 0.5


class Machine:
    """What every `Sandbox` with our pid 1 inside has in common. Used from the event loop that made it."""

    def __init__(self, name: str, env: Mapping[str, str], channel: Channel, listener: socket.socket) -> None:
        self.name = name
        self.listener = listener
        self.ways = channel.ways
        self._env = dict(env)
        self._channel = channel
        self._paused = False
        self._holding = asyncio.Lock()

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORK_DIR,
        timeout_s: float,
        on_output: OnOutput | None = None,
        stdout_to: Path | None = None,
        max_output: int = 4_000_000,
        key: str = "",
    ) -> ExecResult:
        if not argv:
            raise RefusedError("a command needs at least a program")
        variables = {**self._env, **(env or {})}
        task = fields("exec", cwd, len(argv), *argv, *(f"{name}={text}" for name, text in variables.items()))
        return await self._run(
            task, stdin, timeout_s=timeout_s, on_output=on_output, stdout_to=stdout_to, max_output=max_output
        )

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        result = await self._file_task(fields("put", inside(path), mode), data)
        if not result.ok:
            raise RefusedError(f"cannot write {path!r} in the sandbox: {result.text().strip()}")

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        task = fields("get", inside(path), max_bytes)
        result = await self._file_task(task, b"", max_output=max_bytes + 1)
        if result.exit_code == MISSING:
            raise MissingError(f"there is no {path!r} in the sandbox")
        if not result.ok:
            reason = result.stderr.decode("utf-8", "replace").strip()
            raise RefusedError(f"cannot read {path!r} in the sandbox: {reason}")
        if len(result.stdout) > max_bytes:
            raise RefusedError(f"{path!r} in the sandbox is larger than {max_bytes} bytes")
        return result.stdout

    async def kill_all(self) -> None:
        await self._channel.call("kill_all", timeout_s=CALL_TIMEOUT_S)

    async def pause(self) -> None:
        if not self._paused:
            await self._channel.call("pause", timeout_s=CALL_TIMEOUT_S)
            self._paused = True

    async def resume(self) -> None:
        if self._paused:
            await self._channel.call("resume", timeout_s=CALL_TIMEOUT_S)
            self._paused = False

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Nothing inside moves in the block; afterwards it is as before, paused or not."""
        async with self._holding:
            was_paused = self._paused
            await self.pause()
            try:
                yield
            finally:
                if not was_paused:
                    await self.resume()

    async def _file_task(self, task: bytes, data: bytes, *, max_output: int = 4096) -> ExecResult:
        return await self._run(task, data, timeout_s=FILE_TIMEOUT_S, max_output=max_output)

    async def _run(
        self,
        task: bytes,
        stdin: bytes,
        *,
        timeout_s: float,
        max_output: int,
        on_output: OnOutput | None = None,
        stdout_to: Path | None = None,
    ) -> ExecResult:
        started_s = time.monotonic()
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with (
            Stream(failure, keep_bytes=max_output, show=seen("stdout", on_output), to=stdout_to) as stdout,
            Stream(failure, keep_bytes=max_output, show=seen("stderr", on_output)) as stderr,
        ):
            async with self._holding:
                answer = await self._start(task, stdin, stdout, stderr)
            try:
                timed_out = await self._wait(answer, failure, stdout, stderr, timeout_s)
            except BaseException:
                self._channel.kill(answer)
                raise
            status = os.waitstatus_to_exitcode(int(str(answer.result()["status"])))
            return ExecResult(
                exit_code=None if timed_out else status,
                stdout=stdout.kept(),
                stderr=stderr.kept(),
                timed_out=timed_out,
                truncated=stdout.truncated or stderr.truncated,
                duration_s=time.monotonic() - started_s,
            )

    async def _start(
        self, task: bytes, stdin: bytes, stdout: Stream, stderr: Stream
    ) -> "asyncio.Future[Answer]":
        with memory_file(task) as request, memory_file(stdin) as data:
            fds = (request.fileno(), data.fileno(), stdout.inlet, stderr.inlet)
            answer = await self._channel.request("exec", fds=fds)
        stdout.close_inlet()
        stderr.close_inlet()
        return answer

    async def _wait(
        self,
        answer: "asyncio.Future[Answer]",
        failure: "asyncio.Future[None]",
        stdout: Stream,
        stderr: Stream,
        timeout_s: float,
    ) -> bool:
        """Until the command ended and its streams did, or a moment passed after it; whether it timed out."""
        either: list[asyncio.Future[Any]] = [answer, failure]
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        timed_out = not answer.done() and not failure.done()
        if timed_out:
            self._channel.kill(answer)
        done, _ = await asyncio.wait(either, timeout=END_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if failure in done:
            failure.result()
        if answer not in done:
            raise SandboxError("a command in the sandbox could not be ended")
        answer.result()
        await asyncio.wait([stdout.finished, stderr.finished], timeout=GRACE_S)
        stdout.drain()
        stderr.drain()
        if failure.done():
            failure.result()
        return timed_out


def fields(*values: object) -> bytes:
    """What pid 1 is told to do, each field ended by a zero byte; RefusedError when one holds such a byte."""
    words = [os.fsencode(str(value)) for value in values]
    if any(b"\0" in word for word in words):
        raise RefusedError("arguments, variables and paths cannot hold a zero byte")
    return b"".join(word + b"\0" for word in words)


def inside(path: str) -> str:
    if not path.startswith("/") or "\0" in path or path.endswith("/"):
        raise RefusedError(f"not an absolute path of a file: {path!r}")
    return path


def seen(name: Literal["stdout", "stderr"], on_output: OnOutput | None) -> Callable[[bytes], None] | None:
    return (lambda data: on_output(name, data)) if on_output else None
