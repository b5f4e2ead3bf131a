"""Limits hold where the host has the capability, and are refused, never ignored, where it has not."""

import asyncio
from collections.abc import Callable

import pytest
from tests.contract.sandbox.commands import sh

from ironworks.core.errors import CapabilityError
from ironworks.core.ports import Capability, SandboxBackend, SandboxSpec

Require = Callable[[Capability], None]
BOMB = """
import os, time
made = 0
while True:
    try: pid = os.fork()
    except OSError: break
    if pid == 0: time.sleep(600)
    made += 1
print(made, flush=True)
os._exit(0)
"""
LIMITS: dict[Capability, dict[str, int]] = {
    "memory_limit": {"memory_bytes": 256 << 20},
    "pids_limit": {"pids": 50},
    "cpu_limit": {"cpus": 1},
    "disk_limit": {"disk_bytes": 1 << 30},
}


@pytest.mark.spec("SB-19")
async def test_processes_are_limited_and_others_do_not_notice(
    backend: SandboxBackend, require: Require
) -> None:
    require("pids_limit")
    one = await backend.create(SandboxSpec(name="one", pids=50))
    two = await backend.create(SandboxSpec(name="two", pids=50))
    running = asyncio.create_task(one.exec(["/usr/bin/python3", "-c", BOMB], timeout_s=60))
    for _ in range(10):
        assert await sh(two, "echo alive") == "alive\n"
        await asyncio.sleep(0.05)
    made = int((await running).stdout)
    assert 20 <= made <= 50
    assert (await one.usage()).pids_refused >= 1
    assert (await two.usage()).pids_refused == 0
    last = asyncio.create_task(one.exec(["sleep", "600"], timeout_s=60))
    await asyncio.sleep(0)
    refused = await one.exec(["true"], timeout_s=20)
    assert refused.exit_code == 126
    assert b"cannot start a process" in refused.stderr
    await one.kill_all()
    assert (await last).exit_code == -9
    assert await sh(one, "echo alive") == "alive\n"


@pytest.mark.spec("SB-19")
async def test_memory_is_limited_and_the_sandbox_lives_on(backend: SandboxBackend, require: Require) -> None:
    require("memory_limit")
    sandbox = await backend.create(SandboxSpec(name="one", memory_bytes=128 << 20))
    script = "import sys\nx = bytearray(b'x') * (64 << 20)\nprint('half', flush=True)\nx *= 16\nprint('all')"
    result = await sandbox.exec(["/usr/bin/python3", "-c", script], timeout_s=60)
    assert (result.exit_code, result.stdout) == (-9, b"half\n")
    assert await sh(sandbox, "echo alive") == "alive\n"
    usage = await sandbox.usage()
    assert 64 << 20 <= usage.memory_peak_bytes <= 129 << 20
    assert usage.oom_kills == 1


@pytest.mark.spec("SB-19")
async def test_processor_time_is_limited(backend: SandboxBackend, require: Require) -> None:
    require("cpu_limit")
    sandbox = await backend.create(SandboxSpec(name="one", cpus=0.1))
    before = await sandbox.usage()
    result = await sandbox.exec(["sh", "-c", "while :; do :; done"], timeout_s=2)
    assert result.timed_out
    used_s = (await sandbox.usage()).cpu_s - before.cpu_s
    assert 0 < used_s <= 0.25 * result.duration_s


FILL = """
import os
for number in range(40):
    if os.fork() == 0:
        with open(f"f{number}", "wb", buffering=0) as file:
            while True: file.write(b"x" * 65536)
            # at the latest until the file is as large as the disk may be
os.wait()
import time; time.sleep(600)
"""
TINY = """
import itertools, os
for folder in itertools.count():
    os.mkdir(f"d{folder}")
    for number in range(10_000):
        os.close(os.open(f"d{folder}/{number}", os.O_CREAT))
    os.chmod(f"d{folder}", 0)
"""
HIDDEN = """
import os, time
kept = []
for number in range(8):
    kept.append(open("f", "wb", buffering=0))
    os.unlink("f")
    kept[-1].write(bytes(25 << 20))
time.sleep(600)
"""


@pytest.mark.spec("SB-27")
async def test_files_without_a_name_count_while_they_are_open(
    backend: SandboxBackend, require: Require
) -> None:
    require("disk_limit")
    one = await backend.create(SandboxSpec(name="one", disk_bytes=100 << 20))
    in_memory = HIDDEN.replace('"f"', '"/dev/shm/f"').replace("sleep(600)", "sleep(1)")
    assert (await one.exec(["/usr/bin/python3", "-c", in_memory], timeout_s=60)).ok
    assert (await one.usage()).disk_kills == 0

    result = await one.exec(["/usr/bin/python3", "-c", HIDDEN], timeout_s=120)

    assert (result.timed_out, result.ok) == (False, False)
    usage = await one.usage()
    assert (usage.disk_kills, usage.disk_bytes < 1 << 20) == (1, True)
    assert await sh(one, "echo more > more; cat more") == "more\n"


@pytest.mark.spec("SB-27")
@pytest.mark.parametrize(
    ("filling", "at_least"), [(FILL, 50 << 20), pytest.param(TINY, 90_000 * 512, marks=pytest.mark.slow)]
)
async def test_a_disk_that_grows_too_large_ends_what_writes_there_and_keeps_what_was_written(
    backend: SandboxBackend, require: Require, filling: str, at_least: int
) -> None:
    require("disk_limit")
    one = await backend.create(SandboxSpec(name="one", disk_bytes=50 << 20))
    two = await backend.create(SandboxSpec(name="two"))
    await one.put("/work/mine", b"mine")

    result = await one.exec(["/usr/bin/python3", "-c", filling], timeout_s=120)

    assert not result.timed_out
    assert not result.ok
    usage = await one.usage()
    assert usage.disk_kills >= 1
    assert at_least <= usage.disk_bytes < 1 << 30
    assert await sh(one, "cat mine; echo more > more; cat more") == "minemore\n"
    assert await sh(two, "echo alive") == "alive\n"


@pytest.mark.spec("SB-27")
async def test_one_file_cannot_be_larger_than_the_disk_may_be(
    backend: SandboxBackend, require: Require
) -> None:
    require("disk_limit")
    one = await backend.create(SandboxSpec(name="one", disk_bytes=20 << 20))
    script = "head -c 400000000 /dev/zero > f; echo $?; stat -c %s f"
    written = (await sh(one, f"trap '' XFSZ; ({script}) 2>/dev/null; true", timeout_s=60)).split()
    assert written != ["0", "400000000"]
    assert int(written[-1]) <= 20 << 20


@pytest.mark.spec("SB-19")
@pytest.mark.parametrize("capability", LIMITS)
async def test_a_limit_that_cannot_be_held_is_refused(
    backend: SandboxBackend, capability: Capability
) -> None:
    spec = SandboxSpec.model_validate({"name": "one", **LIMITS[capability]})
    if capability in backend.capabilities():
        assert (await (await backend.create(spec)).exec(["true"], timeout_s=20)).ok
    else:
        with pytest.raises(CapabilityError):
            await backend.create(spec)
