"""Bombs: what they fill is bounded, and the sandbox beside them goes on."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh
from tests.escape.conftest import Require

from ironworks.core.errors import SandboxError
from ironworks.core.models import ExecResult
from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec

pytestmark = pytest.mark.slow
FORKS = """
import os, time
made = 0
while made < 150:
    try: pid = os.fork()
    except OSError: break
    if pid == 0: time.sleep(600)
    made += 1
print(made, flush=True)
os._exit(0)
"""
MEMORY = """
import sys
taken = []
for part in range(24):
    taken.append(bytearray(b"x") * (16 << 20))
    print(part, flush=True)
"""
FILL = """
import os, sys
path, left = sys.argv[1], int(sys.argv[2])
written = 0
try:
    with open(path, "wb", buffering=0) as file:
        while written < left: written += file.write(bytes(1 << 20))
except OSError as error: print(error.errno, end=" ")
print(written >> 20)
os.unlink(path)
"""
MANY = """
import os, sys
total, each = int(sys.argv[1]), 1000
for folder in range(total // each):
    os.mkdir(f"d{folder}")
    for name in range(each): os.close(os.open(f"d{folder}/{name}", os.O_CREAT | os.O_WRONLY))
print(sum(len(files) for _, _, files in os.walk(".")))
"""
SHM_LIMIT_MB, NO_SPACE, TOO_LARGE = 512, "28", "27"


async def run(sandbox: Sandbox, program: str, *arguments: str, timeout_s: float = 120) -> ExecResult:
    return await sandbox.exec(["/usr/bin/python3", "-I", "-c", program, *arguments], timeout_s=timeout_s)


async def forked(backend: SandboxBackend, name: str, pids: int | None) -> int:
    sandbox = await backend.create(SandboxSpec(name=name, pids=pids))
    made = int((await run(sandbox, FORKS)).stdout)
    await sandbox.kill_all()
    assert await sh(sandbox, "echo alive") == "alive\n"
    return made


@pytest.mark.spec("SB-19")
async def test_a_fork_bomb_goes_as_far_as_its_limit(backend: SandboxBackend, require: Require) -> None:
    require("pids_limit")
    assert 10 < await forked(backend, "one", 40) <= 40
    assert await forked(backend, "two", None) == 150


@pytest.mark.spec("SB-19")
async def test_a_memory_bomb_goes_as_far_as_its_limit(backend: SandboxBackend, require: Require) -> None:
    require("memory_limit")
    one, two = [
        await backend.create(SandboxSpec(name=name, memory_bytes=size))
        for name, size in (("one", 128 << 20), ("two", 1 << 30))
    ]
    bombing = asyncio.create_task(run(one, MEMORY))
    assert await sh(two, "echo alive") == "alive\n"
    bombed = await bombing
    assert bombed.exit_code == -9
    assert 2 <= bombed.stdout.count(b"\n") < 8
    assert await sh(one, "echo alive") == "alive\n"
    # With more room the same program comes to its end.
    assert (await run(two, MEMORY)).stdout.count(b"\n") == 24


@pytest.mark.spec("SB-37")
async def test_what_lies_in_memory_is_bounded(sandbox: Sandbox) -> None:
    """/dev/shm and /run are full long before the host's memory is; /tmp, which is larger, takes as much."""
    asked = str((SHM_LIMIT_MB + 64) << 20)
    filled = await run(sandbox, FILL, "/dev/shm/fill", asked)
    assert filled.stdout.decode() == f"{NO_SPACE} {SHM_LIMIT_MB}\n"
    assert (await run(sandbox, FILL, "/run/fill", asked)).stdout.decode().startswith(NO_SPACE)
    assert (await run(sandbox, FILL, "/tmp/fill", asked)).stdout.decode() == f"{SHM_LIMIT_MB + 64}\n"
    assert await sh(sandbox, "echo alive") == "alive\n"


@pytest.mark.spec("SB-37")
async def test_what_lies_in_memory_counts_as_memory(backend: SandboxBackend, require: Require) -> None:
    require("memory_limit")
    one, two = [
        await backend.create(SandboxSpec(name=name, memory_bytes=size))
        for name, size in (("one", 96 << 20), ("two", 512 << 20))
    ]
    # What a file there takes outlives the command that is killed for it; then the sandbox may be what ends.
    with contextlib.suppress(SandboxError):
        filled = await run(one, FILL, "/dev/shm/fill", str(256 << 20))
        assert not filled.ok or NO_SPACE in filled.stdout.decode()
    # The neighbour notices nothing, and with more room the same program comes to its end.
    assert (await run(two, FILL, "/dev/shm/fill", str(256 << 20))).stdout == b"256\n"


@pytest.mark.spec("SB-37")
async def test_a_disk_fills_no_further_than_its_limit(backend: SandboxBackend, require: Require) -> None:
    require("disk_limit")
    one = await backend.create(SandboxSpec(name="one", disk_bytes=64 << 20))
    two = await backend.create(SandboxSpec(name="two", disk_bytes=512 << 20))
    filled = await run(one, FILL, "/work/fill", str(256 << 20))
    # Refused by the disk or as too large a file, or ended by whoever watches the disk.
    assert not filled.ok or filled.stdout.decode().startswith((NO_SPACE, TOO_LARGE))
    assert (await one.usage()).disk_bytes < 256 << 20
    assert (await run(two, FILL, "/work/fill", str(256 << 20))).stdout == b"256\n"


def count_of(root: Path) -> int:
    return sum(1 for _ in root.rglob("*/d0/*"))


async def many_files(backend: SandboxBackend, count: int, root: Path) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    making = asyncio.create_task(run(one, MANY, str(count), timeout_s=1500))
    while not making.done():
        assert await sh(two, "echo alive") == "alive\n"
        await asyncio.sleep(0.2)
    assert (await making).stdout.decode() == f"{count}\n"
    await backend.snapshot(one, "many")
    on_host = count_of(root)
    three = await backend.create(SandboxSpec(name="three", snapshot="many"))
    folders = count // 1000
    assert await sh(three, "ls d0 | wc -l; touch d0/new; rm -r d1; ls | wc -l") == f"1000\n{folders - 1}\n"
    for name in ("one", "two", "three"):
        await backend.destroy(name)
    await backend.remove_snapshot("many")
    # They were on the host, where its disks lie there, and none is left.
    assert on_host in {0, 1000}
    assert count_of(root) == 0
    assert await backend.sandboxes() == []


@pytest.mark.spec("SB-37")
async def test_many_tiny_files_are_frozen_shared_and_removed(backend: SandboxBackend, tmp_path: Path) -> None:
    await many_files(backend, 20_000, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.spec("SB-37")
async def test_a_million_tiny_files_are_frozen_shared_and_removed(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    began_s = time.monotonic()
    await many_files(backend, 1_000_000, tmp_path)
    print(f"{time.monotonic() - began_s:.0f} s")
