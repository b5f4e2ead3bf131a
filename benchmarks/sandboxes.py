"""Local sandboxes beside bare `bwrap --overlay`, `docker run`, `git worktree` with a copy, and `srt`.

All start from the same base, in the same run, in turn. A peer that is not on this machine is named, and the
bar that needs it is not met. Ratios may be compared between machines, milliseconds may not.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bars import ours, peer
from bars.base import Base, real_base, small_base
from bars.result import Bar, conclude, options

from ironworks.sandbox.local import LocalBackend

ROUNDS, SLOW_ROUNDS, COPY_ROUNDS = 40, 12, 1
QUICK_ROUNDS, QUICK_SLOW_ROUNDS = 8, 3
BARE, DOCKER, EXEC_MS, SNAPSHOT_MS, MEMORY_MB, DISK_KB = 2.5, 1 / 8, 3.0, 5.0, 6.0, 64.0


class Peers:
    """Those that are here, and why the others are not."""

    def __init__(self, base: Base, folder: Path) -> None:
        makers: dict[str, Callable[[], peer.Peer]] = {
            "plain": lambda: peer.plain,
            "bare_bwrap": lambda: peer.bare_bwrap(base, folder),
            "docker_run": lambda: peer.docker_run(base),
            "worktree_copy": lambda: peer.worktree_copy(base, folder),
            "srt": lambda: peer.sandbox_runtime(folder),
        }
        self.missing: dict[str, str] = {}
        self.times: ours.Times = {}
        self._here: dict[str, peer.Peer] = {}
        for name, make in makers.items():
            with self._missing(name):
                self._here[name] = make()

    def run(self, name: str) -> None:
        if name in self._here and name not in self.missing:
            with self._missing(name):
                self.times.setdefault(name, []).append(self._here[name]())

    def median_s(self, name: str) -> float | None:
        return statistics.median(self.times[name]) if self.times.get(name) else None

    @contextlib.contextmanager
    def _missing(self, name: str) -> Iterator[None]:
        try:
            yield
        except peer.MissingPeer as error:
            self.missing[name] = str(error)


async def measure(base: Base, peers: Peers, folder: Path, *, quick: bool) -> dict[str, object]:
    rounds, slow = (QUICK_ROUNDS, QUICK_SLOW_ROUNDS) if quick else (ROUNDS, SLOW_ROUNDS)
    backend = LocalBackend(folder / "state")
    times: ours.Times = {}
    await ours.import_base(backend, base)
    for number in range(rounds):
        await ours.life(backend, times, number)
        for name in ("plain", "bare_bwrap", *(("docker_run", "srt") if number < slow else ())):
            await asyncio.to_thread(peers.run, name)
    for _ in range(COPY_ROUNDS):
        await asyncio.to_thread(peers.run, "worktree_copy")
    numbers: dict[str, object] = {}
    for count in (20, 50) if quick else (50, 200):
        idle: dict[str, float | None] = {}

        def look(names: list[str], idle: dict[str, float | None] = idle) -> None:
            time.sleep(1)
            idle["memory_mb"] = ours.memory_mb(len(names))
            idle["disk_kb"] = ours.disk_kb(folder / "state", names)

        took_s, failed = await ours.many(backend, count, look)
        numbers |= {f"at_once_{count}_s": round(took_s, 2), f"at_once_{count}_failed": failed, **idle}
    await backend.close()
    for name, values in times.items():
        numbers[f"{name}_p50_ms"] = round(1000 * statistics.median(values), 2)
        numbers[f"{name}_max_ms"] = round(1000 * max(values), 2)
    return numbers


def ratio(ours_ms: float, peer_s: float | None) -> float | None:
    return None if peer_s is None else round(ours_ms / 1000 / peer_s, 3)


def bars(numbers: dict[str, object], peers: Peers, count: int) -> list[Bar]:
    def number(name: str) -> float:
        return float(str(numbers[name]))

    create_ms = number("create_and_exec_p50_ms")
    exec_ms = number("exec_p50_ms") - 1000 * (peers.median_s("plain") or 0)
    memory = numbers["memory_mb"]
    return [
        Bar("create and first command / bare bwrap", ratio(create_ms, peers.median_s("bare_bwrap")), BARE),
        Bar("create and first command / docker run", ratio(create_ms, peers.median_s("docker_run")), DOCKER),
        Bar("command over a plain process, ms", round(exec_ms, 2), EXEC_MS),
        Bar("snapshot of a stopped sandbox, ms", number("snapshot_p50_ms"), SNAPSHOT_MS),
        Bar(f"failed of {count} at once", number(f"at_once_{count}_failed"), 0),
        Bar("memory of an idle sandbox, MB", None if memory is None else float(str(memory)), MEMORY_MB),
        Bar("disk of a new sandbox, KB", number("disk_kb"), DISK_KB),
    ]


def main() -> None:
    given = options(str(__doc__).splitlines()[0])
    # Not in memory: overlays and copies shall meet a disk.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        base = small_base(folder / "base") if given.quick else real_base()
        peers = Peers(base, folder)
        try:
            numbers = asyncio.run(measure(base, peers, folder, quick=given.quick))
        finally:
            if "docker_run" not in peers.missing:
                peer.remove_image()
    for one in peers.times:
        numbers[f"peer_{one}_p50_ms"] = round(1000 * (peers.median_s(one) or 0), 2)
    about = {
        "base": base.source,
        "base_files": base.files,
        "base_mb": base.megabytes,
        "missing": peers.missing,
    }
    conclude(bars(numbers, peers, 50 if given.quick else 200), {**about, **numbers}, as_json=given.json)


if __name__ == "__main__":
    main()
