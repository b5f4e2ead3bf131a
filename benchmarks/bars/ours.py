"""The local sandboxes being measured: times of a life, many at once, and what an idle one takes."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from bars.base import Base
from ironworks.core.ports import Mount, SandboxSpec
from ironworks.sandbox.local import LocalBackend

EXEC_S, WARM_EXECS, FORK = 60, 5, 5
AT_ONCE = 16
"""How many are being made at the same time; all of them live at the end."""
Times = dict[str, list[float]]
Result = TypeVar("Result")


async def timed(times: Times, name: str, work: Awaitable[Result]) -> Result:
    started_s = time.perf_counter()
    result = await work
    times.setdefault(name, []).append(time.perf_counter() - started_s)
    return result


async def import_base(backend: LocalBackend, base: Base) -> None:
    """The base as a snapshot, by a copy inside; `base` is its name."""
    shown = Mount(host=str(base.path), inside="/mnt/base")
    sandbox = await backend.create(SandboxSpec(name="base", mounts=(shown,)))
    copied = await sandbox.exec(["cp", "-a", "/mnt/base/.", "/work"], timeout_s=900)
    if not copied.ok:
        raise SystemExit(f"the base cannot be copied: {copied.text()[-300:]}")
    await backend.snapshot(sandbox, "base")
    await backend.destroy("base")


async def first_exec(backend: LocalBackend, name: str, snapshot: str = "base") -> None:
    sandbox = await backend.create(SandboxSpec(name=name, snapshot=snapshot))
    if not (await sandbox.exec(["/usr/bin/true"], timeout_s=EXEC_S)).ok:
        raise RuntimeError("the first command failed")


async def life(backend: LocalBackend, times: Times, number: int) -> None:
    """One sandbox from its making to its end."""
    name, frozen = f"one-{number}", f"frozen-{number}"
    await timed(times, "create_and_exec", first_exec(backend, name))
    sandbox = await timed(times, "create_again", backend.create(SandboxSpec(name=name)))
    for _ in range(WARM_EXECS):
        await timed(times, "exec", sandbox.exec(["/usr/bin/true"], timeout_s=EXEC_S))
    await sandbox.put("/work/changed", os.urandom(100_000))
    await sandbox.stop()
    await timed(times, "snapshot", backend.snapshot(sandbox, frozen))
    forks = [f"fork-{number}-{index}" for index in range(FORK)]
    await timed(times, "fork_5", asyncio.gather(*(first_exec(backend, fork, frozen) for fork in forks)))
    for fork in forks:
        await timed(times, "destroy", backend.destroy(fork))
    await backend.destroy(name)
    await backend.remove_snapshot(frozen)


async def many(backend: LocalBackend, count: int, look: Callable[[list[str]], None]) -> tuple[float, int]:
    """Seconds until `count` sandboxes have all run a command and live, and how many failed; then `look`."""
    room = asyncio.Semaphore(AT_ONCE)
    names = [f"many-{number}" for number in range(count)]

    async def one(name: str) -> None:
        async with room:
            await first_exec(backend, name)

    started_s = time.perf_counter()
    results = await asyncio.gather(*(one(name) for name in names), return_exceptions=True)
    took_s = time.perf_counter() - started_s
    failed = sum(isinstance(result, BaseException) for result in results)
    await asyncio.to_thread(look, names)
    await asyncio.gather(*(backend.destroy(name) for name in names))
    return took_s, failed


def memory_mb(count: int) -> float | None:
    """Proportional set size of everything below this process, in MB a sandbox; None where it is not told."""
    total = 0
    for pid in descendants(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except ProcessLookupError:
            continue
        except OSError:
            return None
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total * 1024 / 1e6 / count, 2)


def descendants(top: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found: list[int] = []
    for pid in parents:
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if above == top and pid != top:
            found.append(pid)
    return found


def disk_kb(root: Path, names: list[str]) -> float:
    """Blocks of all that belongs to a sandbox's disk, in KB a sandbox."""
    total = 0
    for name in names:
        for folder, _, files in os.walk(root / "disks" / name):
            paths = [Path(folder), *(Path(folder) / file for file in files)]
            total += sum(path.lstat().st_blocks * 512 for path in paths)
    return round(total / 1024 / max(1, len(names)), 1)
