"""One box of the service, used as a sandbox: every command is a framed session of its own."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from ironworks.core.errors import MissingError, RefusedError, SandboxError
from ironworks.core.models import ExecResult
from ironworks.core.ports import WORK_DIR, OnOutput, SandboxUsage
from ironworks.sandbox.machine import fields, inside
from ironworks.sandbox.pid1 import MISSING
from ironworks.sandbox.stream import open_for_writing
from ironworks.sandbox.upstash import keeping, program
from ironworks.sandbox.upstash.joining import joined
from ironworks.sandbox.upstash.service import WAITS_S, Service

FILE_TIMEOUT_S = 300.0
CALL_TIMEOUT_S = 60.0
STDIN_BYTES = 1 << 16
FIRST_SIGNAL, LAST_SIGNAL = 128, 192
Name = Literal["stdout", "stderr"]


class Cut(SandboxError):
    """The connection was lost, or the box has ended: nobody knows how far the command came."""


class Output:
    """What of one stream is kept, shown, or written to a file of the host."""

    def __init__(
        self, name: Name, keep_bytes: int, on_output: OnOutput | None, file: IO[bytes] | None
    ) -> None:
        self._name: Name = name
        self._keep_bytes = 0 if file else keep_bytes
        self._on_output = on_output
        self._file = file
        self._kept = bytearray()
        self.truncated = False
        self.taken = 0
        """Bytes so far."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, data: bytes) -> None:
        self.taken += len(data)
        try:
            if self._file:
                self._file.write(data)
                return
            if self._on_output:
                self._on_output(self._name, data)
        except BaseException as error:
            if not self.failure.done():
                self.failure.set_exception(error)
            return
        self._kept += data
        if len(self._kept) > self._keep_bytes:
            self.truncated = True
            del self._kept[: len(self._kept) - self._keep_bytes]

    def kept(self) -> bytes:
        return bytes(self._kept)


Outputs = dict[Name, Output]


class UpstashSandbox:
    """The `Sandbox` of the upstash backend."""

    listener = None
    ways = None

    def __init__(self, name: str, box: Any, service: Service, env: Mapping[str, str]) -> None:
        self.name = name
        self.box = box
        self._service = service
        self._env = dict(env)
        self._resting: list[str] | None = None
        self._holding = asyncio.Lock()
        self.stopped = False

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
        words = ["exec", cwd, str(len(argv)), *argv, *(f"{name}={text}" for name, text in variables.items())]
        with contextlib.ExitStack() as stack:
            target = open_for_writing(stdout_to) if stdout_to else None
            file = stack.enter_context(os.fdopen(target, "wb")) if target is not None else None
            outputs: Outputs = {
                "stdout": Output("stdout", max_output, on_output, file),
                "stderr": Output("stderr", max_output, on_output, None),
            }
            if key:
                fields(*words)
                return await joined(self, key, words, stdin, timeout_s, outputs)
            return await self._perform(words, stdin, timeout_s, outputs)

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        result = await self._file_task(["put", inside(path), str(mode)], data, 4096)
        if not result.ok:
            raise RefusedError(f"cannot write {path!r} in the sandbox: {result.text().strip()}")

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        result = await self._file_task(["get", inside(path), str(max_bytes)], b"", max_bytes + 1)
        if result.exit_code == MISSING:
            raise MissingError(f"there is no {path!r} in the sandbox")
        if not result.ok:
            reason = result.stderr.decode("utf-8", "replace").strip()
            raise RefusedError(f"cannot read {path!r} in the sandbox: {reason}")
        if len(result.stdout) > max_bytes:
            raise RefusedError(f"{path!r} in the sandbox is larger than {max_bytes} bytes")
        return result.stdout

    async def kill_all(self) -> None:
        await self.ask(program.KILL_ALL)

    async def pause(self) -> None:
        """What runs is stopped where it is; the service's own pause would end it."""
        if self._resting is None:
            self._resting = (await self.ask(program.PAUSE, twice=False)).split()

    async def resume(self) -> None:
        if self._resting is not None:
            await self.ask(program.RESUME, *self._resting)
            self._resting = None

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Nothing inside moves in the block; afterwards it is as before, paused or not."""
        async with self._holding:
            was_paused = self._resting is not None
            await self.pause()
            try:
                yield
            finally:
                if was_paused:
                    # The service may have held its processes by itself and let go of all of them.
                    await self.ask(program.PAUSE)
                else:
                    await self.resume()

    async def usage(self) -> SandboxUsage:
        data = next((each for each in await self._service.boxes() if each.id == self.box.id), None)
        return SandboxUsage(
            cpu_s=(data.total_cpu_ns or 0) / 1e9 if data else 0.0,
            disk_bytes=int(await self.ask(program.USAGE)),
        )

    async def stop(self) -> None:
        """End what runs, and let the box rest: it costs its storage only."""
        if self.stopped:
            return
        self.stopped = True
        with contextlib.suppress(MissingError):
            if await self._service.status(self.box) not in {"paused", "pausing"}:
                await self._service.call(self.box.pause)
        await self.box.aclose()

    async def abandon(self) -> None:
        """Forget it: its box is about to be deleted."""
        self.stopped = True
        await self.box.aclose()

    async def ask(self, script: str, *words: str, twice: bool = True) -> str:
        """What a script of ours prints; it must succeed. `twice`: it may be run again if it is cut."""

        async def once() -> ExecResult:
            return await self._session(["-c", script, *words], b"", CALL_TIMEOUT_S, self._outputs(1 << 20))

        result = await (self._again(once) if twice else once())
        if not result.ok:
            raise SandboxError(f"the box does not do as it is told: {result.text(500)}")
        return result.stdout.decode()

    async def run_script(self, script: str, words: Sequence[str], outputs: Outputs) -> None:
        """A script of ours that may take for ever; it must succeed."""
        result = await self._session(["-c", script, *words], b"", None, outputs)
        if not result.ok:
            raise SandboxError(f"the box does not do as it is told: exit code {result.exit_code}")

    async def command(self, line: str) -> None:
        """A shell command that leaves something running, which a session would end."""
        run = await self._service.call(lambda: self.box.exec.command(line))
        if run.exit_code != 0:
            raise SandboxError(f"the box does not do as it is told: {run.result}"[:500])

    async def running(self) -> bool:
        """Whether a command with a key is at work that somebody may join."""
        return (await self.ask(keeping.RUNNING, keeping.FOLDER)).strip() != "0"

    async def _file_task(self, words: list[str], data: bytes, max_output: int) -> ExecResult:
        return await self._again(
            lambda: self._perform(words, data, FILE_TIMEOUT_S, self._outputs(max_output))
        )

    async def _again(self, work: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        """What may be done twice, done again when its connection is cut."""
        for wait_s in WAITS_S:
            try:
                return await work()
            except Cut:
                if self.stopped:
                    raise
                await asyncio.sleep(wait_s)
        return await work()

    def _outputs(self, keep_bytes: int) -> Outputs:
        names: tuple[Name, Name] = ("stdout", "stderr")
        return {name: Output(name, keep_bytes, None, None) for name in names}

    async def _perform(
        self, words: Sequence[str], stdin: bytes, timeout_s: float | None, outputs: Outputs
    ) -> ExecResult:
        fields(*words)  # refuses what no argument can hold
        return await self._session(["-c", program.source(), *words], stdin, timeout_s, outputs)

    async def _session(
        self, arguments: Sequence[str], stdin: bytes, timeout_s: float | None, outputs: Outputs
    ) -> ExecResult:
        if self.stopped:
            raise SandboxError("the sandbox has ended")
        began_s = time.monotonic()
        handle = await self._service.call(
            lambda: self.box.exec.session(
                argv=[program.PYTHON, "-I", "-S", *arguments],
                cwd="/",
                on_stdout=outputs["stdout"].take,
                on_stderr=outputs["stderr"].take,
            )
        )
        try:
            code = await self._to_the_end(handle, stdin, timeout_s, outputs)
            if self.stopped:
                raise SandboxError("the sandbox has ended")
        finally:
            # Whatever still runs of it ends with the connection.
            await asyncio.shield(self._closed(handle))
        return ExecResult(
            exit_code=code,
            stdout=outputs["stdout"].kept(),
            stderr=outputs["stderr"].kept(),
            timed_out=code is None,
            truncated=any(output.truncated for output in outputs.values()),
            duration_s=time.monotonic() - began_s,
        )

    async def _closed(self, handle: Any) -> None:
        with contextlib.suppress(Exception):
            await handle.kill("KILL")
        await handle.close()

    async def _to_the_end(
        self, handle: Any, stdin: bytes, timeout_s: float | None, outputs: Outputs
    ) -> int | None:
        """Its exit code, negative for a signal; None when its time was up."""
        writing = asyncio.ensure_future(self._write(handle, stdin))
        ending = asyncio.ensure_future(handle.wait())
        failures = [output.failure for output in outputs.values()]
        try:
            done, _ = await asyncio.wait(
                [ending, *failures], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for failure in failures:
                if failure.done():
                    failure.result()
            if ending not in done:
                return None
            code = int(ending.result())
        finally:
            for each in (writing, ending):
                each.cancel()
        if code == -1:
            raise Cut("the connection to the box was lost, or the box has ended")
        # As a shell has it, and the service: what was ended by a signal shows as 128 and its number.
        return FIRST_SIGNAL - code if FIRST_SIGNAL < code < LAST_SIGNAL else code

    async def _write(self, handle: Any, data: bytes) -> None:
        with contextlib.suppress(Exception):
            for start in range(0, len(data), STDIN_BYTES):
                await handle.write(data[start : start + STDIN_BYTES])
            await handle.end_stdin()
