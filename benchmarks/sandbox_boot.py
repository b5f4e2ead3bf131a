"""How long a local sandbox takes to boot, beside one command under plain `bwrap --overlay`, the floor.

Peers run in turn on the same machine in the same minute; only the ratio is worth comparing between machines.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.local.boot import find_bwrap, overlay
from ironworks.sandbox.local.view import system_arguments

ROUNDS, QUICK_ROUNDS, WARM_EXECS = 60, 10, 5


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


def summary(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median and worst of each in milliseconds, and the ratio of medians to the peer."""
    peer_s = statistics.median(times["plain_bwrap_s"])
    return {
        name.removesuffix("_s"): {
            "median_ms": round(1000 * statistics.median(values), 2),
            "max_ms": round(1000 * max(values), 2),
            "ratio": round(statistics.median(values) / peer_s, 2),
            "n": len(values),
        }
        for name, values in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure(Path(folder), QUICK_ROUNDS if options.quick else ROUNDS))
    result = summary(times)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, row in result.items():
        times_ms = f"median {row['median_ms']:8.2f} ms  max {row['max_ms']:8.2f} ms"
        print(f"{name:12} {times_ms}  {row['ratio']:5.2f} x plain bwrap")


if __name__ == "__main__":
    main()
