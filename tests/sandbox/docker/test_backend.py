import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh, until

from ironworks.core.errors import CapabilityError, ConfigError, MissingError, SandboxError
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.docker import DockerBackend
from ironworks.testing.engine import IMAGE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECRET = "sk-test-7d1f"
HOLDER = """
import asyncio, sys
from pathlib import Path
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.docker import DockerBackend

async def main():
    backend = DockerBackend(Path(sys.argv[1]), image=sys.argv[2], address=sys.argv[3])
    one = await backend.create(SandboxSpec(name="one"))
    await one.put("/work/f", b"kept")
    running = asyncio.ensure_future(one.exec(["sleep", "600"], timeout_s=600))
    await one.exec(["true"], timeout_s=20)
    print("up", flush=True)
    await running

asyncio.run(main())
"""


@pytest.fixture
async def backend(engine: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    made = DockerBackend(tmp_path / "state", image=IMAGE, address=engine)
    yield made
    await made.close()
    await made.collect(frozenset())


def inspected(engine: str, backend: DockerBackend, name: str) -> str:
    words = ["/usr/bin/docker", "-H", f"unix://{engine}", "inspect", backend._engine.container_name(name)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.spec("SB-47")
async def test_a_container_has_no_privilege_and_its_record_no_secret(
    engine: str, backend: DockerBackend
) -> None:
    one = await backend.create(SandboxSpec(name="one", env={"TOKEN": SECRET}))
    assert await sh(one, "echo $TOKEN; id -u; ls -A /sys") == f"{SECRET}\n1000\n"
    status = await sh(
        one, "grep -E 'CapEff|CapPrm|CapBnd|CapAmb|NoNewPrivs|Seccomp:|Seccomp_filters' /proc/self/status"
    )
    facts = dict(line.split(":\t") for line in status.splitlines())
    assert {int(facts[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert int(facts.get("Seccomp_filters", 2)) == 2

    record = inspected(engine, backend, "one")
    assert SECRET not in record
    host = json.loads(record)[0]["HostConfig"]
    assert (host["NetworkMode"], host["Privileged"], host["CapDrop"]) == ("none", False, ["ALL"])


@pytest.mark.spec("SB-48")
async def test_a_container_ends_with_the_process_that_made_it_and_its_disk_stays(
    engine: str, backend: DockerBackend, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "state"), IMAGE, engine]
    with await asyncio.to_thread(subprocess.Popen, words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"up\n"
        assert [(box.name, box.running) for box in await backend.sandboxes()] == [("one", True)]
        holder.kill()

    async def ended() -> bool:
        return not (await backend.sandboxes())[0].running

    await until(ended)
    assert await sh(await backend.create(SandboxSpec(name="one")), "cat f") == "kept"


@pytest.mark.spec("SB-48")
async def test_state_folders_on_one_engine_do_not_touch_each_other(
    engine: str, backend: DockerBackend, tmp_path: Path
) -> None:
    other = DockerBackend(tmp_path / "other", image=IMAGE, address=engine)
    theirs = await other.create(SandboxSpec(name="one"))
    mine = await backend.create(SandboxSpec(name="one"))
    await backend.snapshot(mine, "shot")
    assert (await other.snapshots(), await other.has_snapshot("shot")) == ([], False)
    assert await backend.collect(frozenset()) == 1
    assert await sh(theirs, "echo alive") == "alive\n"
    await other.close()
    await other.destroy("one")


@pytest.mark.spec("SB-8")
async def test_a_disk_goes_on_with_other_limits_and_mounts(backend: DockerBackend) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    await one.put("/work/f", b"kept")
    for memory in (256 << 20, 512 << 20):
        one = await backend.create(SandboxSpec(name="one", memory_bytes=memory))
        assert await sh(one, "cat f") == "kept"
    await backend.destroy("one")
    assert await backend.snapshots() == []
    assert backend._engine.images() == []


@pytest.mark.spec("SB-45")
async def test_what_cannot_be_had_is_an_error_that_says_what_to_do(
    engine: str, backend: DockerBackend, tmp_path: Path
) -> None:
    with pytest.raises(MissingError, match=r"example\.invalid/x") as missing:
        await backend.create(SandboxSpec(name="one", image="example.invalid/x:1"))
    assert "docker pull" in missing.value.hint
    for spec in (SandboxSpec(name="one", disk_bytes=1 << 30), SandboxSpec(name="one", transparent=True)):
        with pytest.raises(CapabilityError):
            await backend.create(spec)
    with pytest.raises(ConfigError, match="no image"):
        await DockerBackend(tmp_path / "s", address=engine).create(SandboxSpec(name="one"))
    nowhere = DockerBackend(tmp_path / "s", image=IMAGE, address=str(tmp_path / "none"))
    assert nowhere.capabilities() == frozenset()
    assert [check.ok for check in nowhere.doctor()] == [False]
    with pytest.raises((SandboxError, CapabilityError)):
        await nowhere.create(SandboxSpec(name="one"))
