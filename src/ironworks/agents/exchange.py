"""One exchange with a program in a sandbox: what it is given, how it is watched, what it leaves."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from ironworks.agents.handoff import MAX_HANDOFF_BYTES
from ironworks.core.errors import MissingError, RefusedError
from ironworks.core.models import ExecResult
from ironworks.core.ports import AgentAnswer, AgentTask, Sandbox, Transcript

TOOLS_DIR = "/run/ironworks/bin"
MAX_TAIL = 4_000
MAX_EVENT_LINE = 1_000_000
MAX_EVENTS = 64_000_000
MIN_TICK_S = 0.05
MAX_TICK_S = 30.0
BUSY_SHARE = 0.01
"""Of one CPU: who computes this much is not silent."""

Alive = Callable[[], float]
"""Monotonic seconds of the last sign of life the exchange itself cannot see, such as model traffic."""
OnLine = Callable[[bytes], None]


def never() -> float:
    return 0.0


async def run_program(
    sandbox: Sandbox,
    task: AgentTask,
    transcript: Transcript,
    argv: Sequence[str],
    *,
    alive: Alive = never,
    files: Mapping[str, bytes] | None = None,
    on_line: OnLine | None = None,
    session: str | None = None,
) -> AgentAnswer:
    """Runs `argv` in the repository root and waits for it; nothing it started lives on.

    `files` are put into the exchange's own folder, and their paths appended to `argv`. `on_line` sees the
    lines of stdout, up to MAX_EVENTS bytes. SandboxError when the sandbox died.
    """
    started_s = time.monotonic()
    folder = f"/run/ironworks/{secrets.token_hex(6)}"
    own = {f"{folder}/{name}": data for name, data in (files or {}).items()}
    env = await _prepare(sandbox, task, folder, own)
    output = _Output(transcript, on_line)
    # The sandbox's own PATH is known only inside it.
    start = ["/bin/sh", "-c", f'PATH="{TOOLS_DIR}:$PATH" exec "$@"', "sh"]
    program = sandbox.exec(
        [*start, *argv, *own],
        env=env,
        timeout_s=task.settings.timeout_s,
        on_output=output,
        max_output=MAX_TAIL,
    )
    try:
        result = await _watched(program, _Silence(sandbox, output, alive), task.settings.silence_s)
    finally:
        await sandbox.kill_all()
    answer = await _answer(sandbox, result, env["IRONWORKS_HANDOFF"], output, task)
    answer = answer.model_copy(update={"duration_s": time.monotonic() - started_s, "session": session})
    transcript.event("ended", ending=answer.ending, exit_code=answer.exit_code, detail=answer.detail)
    return answer


async def _prepare(
    sandbox: Sandbox, task: AgentTask, folder: str, files: Mapping[str, bytes]
) -> dict[str, str]:
    """Puts everything the program reads; the environment that names it."""
    issue = json.dumps(task.issue.model_dump(mode="json")).encode()
    paths = {name: f"{folder}/{name}" for name in ("issue.json", "prompt.md", "input.json", "handoff.json")}
    puts = {
        paths["issue.json"]: issue,
        paths["prompt.md"]: task.prompt.encode("utf-8", "replace"),
        paths["input.json"]: json.dumps(task.input, default=str).encode(),
        **files,
    }
    tool = resources.files("ironworks.agents").joinpath("iw").read_bytes()
    await asyncio.gather(
        sandbox.put(f"{TOOLS_DIR}/iw", tool, mode=0o755),
        *(sandbox.put(path, data) for path, data in puts.items()),
    )
    return {
        **task.env,
        "IRONWORKS_STAGE": task.stage,
        "IRONWORKS_ISSUE": paths["issue.json"],
        "IRONWORKS_PROMPT": paths["prompt.md"],
        "IRONWORKS_INPUT": paths["input.json"],
        "IRONWORKS_HANDOFF": paths["handoff.json"],
    }


class _Output:
    """Takes what the program prints, chunk by chunk, in bounded memory."""

    def __init__(self, transcript: Transcript, on_line: OnLine | None) -> None:
        self.last_s = time.monotonic()
        self._transcript = transcript
        self._on_line = on_line
        self._tails = {"stdout": b"", "stderr": b""}
        self._line = b""
        self._read = 0

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self.last_s = time.monotonic()
        self._transcript.raw(stream, data)
        self._tails[stream] = (self._tails[stream] + data[-MAX_TAIL:])[-MAX_TAIL:]
        if self._on_line and stream == "stdout" and self._read < MAX_EVENTS:
            self._read += len(data)
            self._split(data, self._on_line)

    def _split(self, data: bytes, on_line: OnLine) -> None:
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            if line[:1] == b"{":  # Nothing else is an event, and a flood of other lines must cost nothing.
                on_line(line)
        # A line without an end is no event: what is kept of it cannot be parsed, and is dropped there.
        self._line = rest[:MAX_EVENT_LINE]

    def detail(self) -> str:
        """The last words, errors before output; events are no words."""
        tail = self._tails["stderr"].strip() or (b"" if self._on_line else self._tails["stdout"].strip())
        return tail[-2000:].decode("utf-8", "replace")


class _Silence:
    """Tells since when nothing at all has happened: no output, no model traffic, no computing."""

    def __init__(self, sandbox: Sandbox, output: _Output, alive: Alive) -> None:
        self._sandbox = sandbox
        self._output = output
        self._alive = alive
        self._busy_s = 0.0
        self._looked_s = 0.0
        self._cpu_s: float | None = None

    async def lasted_s(self) -> float:
        """Seconds of silence until now. CPU time is asked for only while all else is silent."""
        now_s = time.monotonic()
        heard_s = max(self._output.last_s, self._alive())
        if heard_s > self._looked_s:
            self._cpu_s = None
        else:
            cpu_s = (await self._sandbox.usage()).cpu_s
            share = 0.0 if self._cpu_s is None else (cpu_s - self._cpu_s) / max(now_s - self._looked_s, 1e-3)
            self._busy_s = now_s if share > BUSY_SHARE else self._busy_s
            self._cpu_s = cpu_s
        self._looked_s = now_s
        return now_s - max(heard_s, self._busy_s)


async def _watched(
    program: Coroutine[Any, Any, ExecResult], silence: _Silence, silence_s: float
) -> ExecResult | None:
    """The program's result; None when it was ended because it had been silent for `silence_s`."""
    running = asyncio.ensure_future(program)
    tick_s = min(max(silence_s / 4, MIN_TICK_S), MAX_TICK_S)
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=tick_s)
            if not running.done() and await silence.lasted_s() >= silence_s:
                return None
        return running.result()
    finally:
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # looked at, so that asyncio does not report it once more


async def _answer(
    sandbox: Sandbox, result: ExecResult | None, path: str, output: _Output, task: AgentTask
) -> AgentAnswer:
    if result is None:
        words = f"nothing was heard of it for {task.settings.silence_s:g} s"
        return AgentAnswer(ending="silent", detail=f"{words}\n{output.detail()}".strip())
    if result.timed_out:
        words = f"not done after {task.settings.timeout_s:g} s"
        return AgentAnswer(ending="timeout", detail=f"{words}\n{output.detail()}".strip())
    answer = AgentAnswer(ending="exited", exit_code=result.exit_code, detail=output.detail())
    if not result.ok:
        return answer
    try:
        data = await sandbox.get(path, max_bytes=MAX_HANDOFF_BYTES)
    except MissingError:
        return answer
    except RefusedError as error:
        return answer.model_copy(update={"detail": f"its handoff cannot be read: {error.message}"})
    # What is not UTF-8 becomes an escape that JSON does not know, and is refused with it.
    return answer.model_copy(update={"handoff": data.decode("utf-8", "backslashreplace")})
