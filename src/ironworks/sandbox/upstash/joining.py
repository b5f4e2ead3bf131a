"""A command with a key: started once in its box, followed by whoever comes, also hours later."""

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ironworks.core.errors import MissingError, SandboxError
from ironworks.core.models import ExecResult, Model
from ironworks.sandbox.upstash import keeping, program

if TYPE_CHECKING:
    from ironworks.sandbox.upstash.sandbox import Outputs, UpstashSandbox

TRIES = 6
WAIT_S = 0.5
GRACE_S = 120.0
"""How long past the command's own time-out, which the box keeps, it is waited for."""
MAX_CODE_BYTES = 10_000


class Ended(Model):
    """What its keeper wrote last."""

    code: int | None
    timed_out: bool
    truncated: bool


async def joined(
    sandbox: "UpstashSandbox",
    key: str,
    words: Sequence[str],
    stdin: bytes,
    timeout_s: float,
    outputs: "Outputs",
) -> ExecResult:
    """Start it unless it was begun, and follow it from its first byte to its end.

    SandboxError when it was begun and did not come to an end: its box was paused or lost, and it is not
    started again.
    """
    folder = f"{keeping.FOLDER}/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    began_s = time.monotonic()
    if (await sandbox.ask(keeping.BEGUN, folder)).strip() != "1":
        await _start(sandbox, folder, words, stdin, timeout_s)
    try:
        async with asyncio.timeout(timeout_s + GRACE_S):
            await _followed(sandbox, folder, outputs)
    except SandboxError:
        raise
    except BaseException as error:
        await asyncio.shield(sandbox.ask(keeping.END, folder))
        if not isinstance(error, TimeoutError):
            raise
    ended = await _ended(sandbox, folder)
    return ExecResult(
        exit_code=ended.code,
        stdout=outputs["stdout"].kept(),
        stderr=outputs["stderr"].kept(),
        timed_out=ended.timed_out,
        truncated=ended.truncated or any(output.truncated for output in outputs.values()),
        duration_s=time.monotonic() - began_s,
    )


async def _start(
    sandbox: "UpstashSandbox", folder: str, words: Sequence[str], stdin: bytes, timeout_s: float
) -> None:
    argv = [program.PYTHON, "-I", "-S", "-c", program.source(), *words]
    order = {"argv": argv, "timeout_s": timeout_s, "limit": keeping.LIMIT_BYTES}
    await sandbox.put(f"{folder}/order", json.dumps(order).encode())
    await sandbox.put(f"{folder}/in", stdin)
    await sandbox.put(f"{folder}/keeper.py", keeping.KEEPER.encode())
    # No session: that would end with its connection. Twice does no harm: only the first one begins.
    await sandbox.command(f"{program.PYTHON} -I -S {folder}/keeper.py {folder}")


async def _followed(sandbox: "UpstashSandbox", folder: str, outputs: "Outputs") -> None:
    """Pass its output on until it is over; a connection that is cut is taken up again where it was."""
    tries, seen = 0, -1
    while True:
        starts = [outputs[name].taken for name in ("stdout", "stderr")]
        try:
            await sandbox.run_script(keeping.FOLLOW, [folder, *map(str, starts)], outputs)
        except SandboxError:
            tries = tries + 1 if sum(starts) == seen else 1
            seen = sum(starts)
            if sandbox.stopped or tries >= TRIES:
                raise
            await asyncio.sleep(WAIT_S * 2**tries)
        else:
            return


async def _ended(sandbox: "UpstashSandbox", folder: str) -> Ended:
    try:
        data = await sandbox.get(f"{folder}/code", max_bytes=MAX_CODE_BYTES)
        return Ended.model_validate_json(data)
    except MissingError:
        why = "it was ended, or its box was paused"
    except ValidationError:
        why = "what it left makes no sense"
    raise SandboxError(f"a command in the box did not come to its end: {why}")
