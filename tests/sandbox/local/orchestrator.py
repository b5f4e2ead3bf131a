"""Programs that the tests run as processes of their own, to be killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from ironworks.core import crash
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend

LOADS = (
    "exec -a {mark} sh -c 'while :; do :; done'",
    "setsid nohup bash -c 'trap \"\" TERM HUP INT; exec -a {mark} sleep 1000' >/dev/null 2>&1 &",
    "(bash -c 'exec -a {mark} sleep 1000' &) ; wait",
    "bash -c 'kill -STOP $$; exec -a {mark} true' & exec -a {mark} sleep 1000",
)


async def load(state: Path, mark: str, count: int) -> None:
    """Keep `count` sandboxes busy with processes called `mark`; say so, then wait to be killed."""
    backend = LocalBackend(state)
    running = []
    pids = 64 if "pids_limit" in backend.capabilities() else None
    for number in range(count):
        name = f"n{number}"
        sandbox = await backend.create(SandboxSpec(name=name, pids=pids))
        await sandbox.put("/work/f", b"work of " + name.encode())
        for script in LOADS:
            argv = ["bash", "-c", script.format(mark=mark)]
            running.append(asyncio.ensure_future(sandbox.exec(argv, timeout_s=1000)))
    print("started", flush=True)
    await asyncio.gather(*running)


async def scenario(state: Path) -> None:
    """Every step of a sandbox's life; run again after a crash it must come to the same end."""
    backend = LocalBackend(state)
    one = await backend.create(SandboxSpec(name="one"))
    if not await backend.has_snapshot("frozen"):
        await one.put("/work/f", b"content")
    await backend.snapshot(one, "frozen")
    two = await backend.create(SandboxSpec(name="two", snapshot="frozen"))
    print((await two.get("/work/f", max_bytes=100)).decode(), flush=True)
    await backend.destroy("one")
    await backend.destroy("two")
    print(await backend.has_disk("one"), flush=True)
    await backend.close()


def die_at(point: str) -> None:
    def hook(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    crash.arm(hook)


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "load":
        asyncio.run(load(where, sys.argv[3], int(sys.argv[4])))
    else:
        die_at(sys.argv[3])
        asyncio.run(scenario(where))
