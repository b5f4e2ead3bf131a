"""How long a local sandbox takes to boot, beside one command under plain `bwrap --overlay`, the floor.

Peers run in turn on the same machine in the same minute; only the ratio is worth comparing between machines.
"""

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bars.result import Bar, conclude, options

from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.local.boot import find_bwrap, overlay
from ironworks.sandbox.local.view import system_arguments

ROUNDS, QUICK_ROUNDS, WARM_EXECS = 60, 10, 5
BOOT, FURTHER = 8.0, 1.0
"""A sandbox stays, with a Python as pid 1 and a gateway's socket; a plain bwrap ends with its one command."""


def plain_bwrap(folder: Path) -> float:
    """Seconds for one command under bubblewrap with an overlay, and nothing else of ours."""
    lower, upper, scratch = (folder / part for part in ("lower", "upper", "scratch"))
    for part in (lower, upper, scratch):
        part.mkdir(parents=True)
    arguments: Iterator[str] = overlay([lower], upper, scratch, "/work")
    command = [
        find_bwrap(),
        "--unshare-all",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        *system_arguments(),
        *arguments,
    ]
    started_s = time.perf_counter()
    subprocess.run([*command, "--", "/usr/bin/true"], check=True, timeout=60)
    return time.perf_counter() - started_s


async def measure(root: Path, rounds: int) -> dict[str, list[float]]:
    backend = LocalBackend(root / "state")
    times: dict[str, list[float]] = {"plain_bwrap_s": [], "create_s": [], "exec_s": [], "destroy_s": []}
    base = await backend.create(SandboxSpec(name="base"))
    await backend.snapshot(base, "base")
    for number in range(rounds):
        times["plain_bwrap_s"].append(await asyncio.to_thread(plain_bwrap, root / f"plain-{number}"))
        started_s = time.perf_counter()
        sandbox = await backend.create(SandboxSpec(name="one", snapshot="base"))
        await sandbox.exec(["true"], timeout_s=60)
        times["create_s"].append(time.perf_counter() - started_s)
        for _ in range(WARM_EXECS):
            started_s = time.perf_counter()
            await sandbox.exec(["true"], timeout_s=60)
            times["exec_s"].append(time.perf_counter() - started_s)
        started_s = time.perf_counter()
        await backend.destroy("one")
        times["destroy_s"].append(time.perf_counter() - started_s)
    await backend.close()
    return times


def main() -> None:
    given = options(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure(Path(folder), QUICK_ROUNDS if given.quick else ROUNDS))
    medians = {name: statistics.median(values) for name, values in times.items()}
    peer_s = medians["plain_bwrap_s"]
    bars = [
        Bar("boot and first command / plain bwrap", round(medians["create_s"] / peer_s, 2), BOOT),
        Bar("further command / plain bwrap", round(medians["exec_s"] / peer_s, 2), FURTHER),
    ]
    numbers = {f"{name.removesuffix('_s')}_ms": round(1000 * value, 2) for name, value in medians.items()}
    worst = round(1000 * max(times["create_s"]), 2)
    conclude(bars, {**numbers, "worst_boot_ms": worst}, as_json=given.json)


if __name__ == "__main__":
    main()
