"""What is left when the process that runs the sandboxes is killed: disks, and nothing else."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ironworks.core.crash import CRASH_POINTS
from ironworks.core.errors import SandboxError
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.local.cgroup import places, tag_of

ORCHESTRATOR = Path(__file__).with_name("orchestrator.py")
POINTS = [point for point in CRASH_POINTS if point.startswith("sandbox.")]


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(ORCHESTRATOR), *arguments], stdout=subprocess.PIPE, text=True
    )


def called(mark: str) -> dict[int, int]:
    """The machine's processes that are called `mark`, and the ticks of processor time each has had."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if words[0].decode("utf-8", "replace") == mark and fields[0] != "Z":
                found[int(folder.name)] = int(fields[11])
    return found


def wait_until(holds: Callable[[], bool], *, timeout_s: float = 40) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it never came true"
        time.sleep(0.02)


@pytest.mark.spec("SB-17")
@pytest.mark.parametrize(
    ("victim", "count"),
    [
        (signal.SIGKILL, 2),
        (signal.SIGTERM, 2),
        pytest.param(signal.SIGKILL, 50, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_every_process_dies_with_the_orchestrator_and_the_disks_stay(
    tmp_path: Path, victim: signal.Signals, count: int
) -> None:
    mark = f"load-{uuid.uuid4().hex}"
    process = start("load", str(tmp_path), mark, str(count))
    try:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        wait_until(lambda: len(called(mark)) >= 4 * count, timeout_s=200)
        wait_until(lambda: max(called(mark).values()) > 3)
    finally:
        process.send_signal(victim)
        process.communicate(timeout=40)
    wait_until(lambda: not called(mark))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()

    async def look() -> set[bytes]:
        backend = LocalBackend(tmp_path)
        sandboxes = [await backend.create(SandboxSpec(name=f"n{number}")) for number in range(count)]
        found = {await sandbox.get("/work/f", max_bytes=100) for sandbox in sandboxes}
        await backend.close()
        assert await backend.collect(frozenset()) == count
        return found

    assert asyncio.run(look()) == {b"work of n%d" % number for number in range(count)}
    LocalBackend(tmp_path)  # sweeps what the kernel still held a moment ago
    left = [place.folder.glob(f"{tag_of(tmp_path)}-*") for place in places()]
    assert [folder for found in left for folder in found] == []
    assert list((tmp_path / "disks").iterdir()) == []


@pytest.mark.spec("SB-17")
async def test_a_sandbox_whose_launcher_is_killed_ends_and_says_so(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    mark = f"load-{uuid.uuid4().hex}"
    sandbox = await backend.create(SandboxSpec(name="one"))
    script = f"setsid bash -c 'exec -a {mark} sleep 1000' & exec -a {mark} sleep 1000"
    running = asyncio.create_task(sandbox.exec(["bash", "-c", script], timeout_s=100))
    await asyncio.to_thread(wait_until, lambda: len(called(mark)) == 2)
    os.kill(parent(next(iter(pid_1_of(mark)))), signal.SIGKILL)
    with pytest.raises(SandboxError):
        await asyncio.wait_for(running, 40)
    await asyncio.to_thread(wait_until, lambda: not called(mark))
    again = await backend.create(SandboxSpec(name="one"))
    assert (await again.exec(["true"], timeout_s=20)).ok
    await backend.close()


def pid_1_of(mark: str) -> set[int]:
    """The oldest ancestor that the processes called `mark` have in their own process namespace."""
    return {ancestor(pid) for pid in called(mark)}


def ancestor(pid: int) -> int:
    namespace = Path(f"/proc/{pid}/ns/pid").readlink()
    while Path(f"/proc/{parent(pid)}/ns/pid").readlink() == namespace:
        pid = parent(pid)
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


@pytest.mark.spec("SB-17")
async def test_closing_ends_everything(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    mark = f"load-{uuid.uuid4().hex}"
    running = []
    for name in ("one", "two"):
        sandbox = await backend.create(SandboxSpec(name=name))
        argv = ["bash", "-c", f"exec -a {mark} sleep 1000"]
        running.append(asyncio.create_task(sandbox.exec(argv, timeout_s=100)))
    await asyncio.to_thread(wait_until, lambda: len(called(mark)) == 2)
    await backend.close()
    assert called(mark) == {}
    results = await asyncio.gather(*running, return_exceptions=True)
    assert [type(result) for result in results] == [SandboxError, SandboxError]


@pytest.mark.spec("SB-18")
@pytest.mark.parametrize("point", POINTS)
def test_a_life_cut_short_at_any_point_comes_to_the_same_end(tmp_path: Path, point: str) -> None:
    first = start("scenario", str(tmp_path), point)
    first.communicate(timeout=40)
    assert first.returncode == -signal.SIGKILL
    second = start("scenario", str(tmp_path), "none")
    said, _ = second.communicate(timeout=40)
    assert (said, second.returncode) == ("content\nFalse\n", 0)


@pytest.mark.spec("SB-8")
async def test_what_still_runs_on_a_disk_is_ended_before_another_sandbox_starts_on_it(tmp_path: Path) -> None:
    # Two backends on one state stand for an orchestrator that died and whose sandbox has not ended yet.
    before, after = LocalBackend(tmp_path), LocalBackend(tmp_path)
    left = await before.create(SandboxSpec(name="one"))
    mark = f"load-{uuid.uuid4().hex}"
    running = asyncio.create_task(left.exec(["bash", "-c", f"exec -a {mark} sleep 1000"], timeout_s=100))
    await asyncio.to_thread(wait_until, lambda: len(called(mark)) == 1)
    await after.create(SandboxSpec(name="one"))
    assert called(mark) == {}
    with pytest.raises(SandboxError):
        await running
    await before.close()
    await after.close()
