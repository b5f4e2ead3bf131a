"""Routes of the built-in coding agent: one that answers from a function, and custom ones, run for real."""

import json
import shlex
import time
from collections.abc import AsyncIterator
from typing import Any

from ironworks.testing.upstash.http import multipart
from ironworks.testing.upstash.jail import Ending, read_some
from ironworks.testing.upstash.service import BOX, ApiError, Box, Call, Reply, Route, route
from ironworks.testing.upstash.work import STREAM, place


def echo(prompt: str) -> str:
    """Says what it is told to say, else that it is done."""
    return prompt.rpartition("exactly:")[2].strip() if "exactly:" in prompt else "Done."


def asked(call: Call) -> dict[str, Any]:
    """The run's fields, from JSON or from a form."""
    if call.request.headers.get("content-type", "").startswith("multipart/"):
        return {
            name: data.decode("utf-8", "replace") for name, data in multipart(call.request) if name != "files"
        }
    return call.request.json()


async def run(call: Call) -> Reply:
    box, body = call.box, asked(call)
    if not body.get("prompt"):
        raise ApiError(400, "prompt is required")
    if not box.body.get("agent"):
        raise ApiError(400, "the box has no agent")
    runner = box.body.get("custom_runner")
    if runner:
        return Reply(stream=custom(box, dict(runner), body), headers=STREAM)
    answer = (call.service.options.agent or echo)(str(body["prompt"]))
    return Reply(stream=scripted(box, str(body["prompt"]), answer), headers=STREAM)


def event(name: str, **data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def scripted(box: Box, prompt: str, answer: str) -> AsyncIterator[bytes]:
    async with box.work():
        record = box.record("agent", prompt, Ending(0, 0, 0), 0)
        box.session_id = box.session_id or f"session_{box.id}"
        counts = {"input_tokens": len(prompt) // 4, "output_tokens": len(answer) // 4}
        record |= counts
        box.tokens["total_prompts"] += 1
        for name, count in counts.items():
            box.tokens[f"total_{name}"] += count
        yield event("run_start", run_id=record["id"])
        yield event("text", text=answer)
        yield event("stats", cpu_ns=0, memory_peak_bytes=0)
        yield event(
            "done",
            output=answer,
            **counts,
            cached_input_tokens=0,
            total_cost_usd=0.0,
            session_id=box.session_id,
        )


async def custom(box: Box, runner: dict[str, Any], body: dict[str, Any]) -> AsyncIterator[bytes]:
    """The caller's own program speaks the protocol; it is passed on as it is."""
    argv = [str(runner.get("command")), *map(str, runner.get("args") or [])]
    argv += ["-p", str(body["prompt"]), "--model", str(box.body.get("model") or "custom"), "--stream"]
    argv += ["--session", box.session_id] if box.session_id else []
    started_s = time.monotonic()
    async with box.work() as jail:
        process = await jail.spawn(argv, box.environment(), place(body.get("folder")))
        try:
            while data := await read_some(process, process.stdout):
                yield data
            ending = await process.ended
        except BaseException:
            await jail.signal(process.pid, "KILL")
            raise
        finally:
            process.close()
    record = box.record("agent", shlex.join(argv), ending, (time.monotonic() - started_s) * 1000)
    box.tokens["total_prompts"] += 1
    if ending.exit_code:
        yield event("error", error=f"the runner ended with {ending.exit_code}", run_id=record["id"])


ROUTES: list[Route] = [route("POST", BOX + "/run/stream", run)]
