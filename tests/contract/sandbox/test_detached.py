"""Commands with a key, where a backend can leave them alone."""

import asyncio
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh, until
from tests.contract.sandbox.conftest import MakeBackend, Require

from ironworks.core.errors import SandboxError
from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec

LONG = """
echo run >> /work/runs; echo first; echo wrong >&2
while ! [ -e /work/go ]; do sleep 0.1; done
cat; echo last; exit 3
"""


async def there(sandbox: Sandbox, path: str) -> bool:
    return (await sandbox.exec(["test", "-e", path], timeout_s=20)).ok


@pytest.mark.spec("SB-66")
async def test_a_command_with_a_key_goes_on_without_its_caller_and_is_joined_by_another(
    backend: SandboxBackend, require: Require, new_backend: MakeBackend
) -> None:
    require("detached")
    one = await backend.create(SandboxSpec(name="one"))
    first = asyncio.ensure_future(
        one.exec(["sh", "-c", LONG], stdin=b"given\n", key="it", env={"A": "1"}, timeout_s=60)
    )
    await until(lambda: there(one, "/work/runs"))
    seen: list[bytes] = []
    other = new_backend()
    again = await other.create(SandboxSpec(name="one"))
    second = asyncio.ensure_future(
        again.exec(["false"], key="it", timeout_s=60, on_output=lambda _, data: seen.append(data))
    )
    await again.put("/work/go", b"")
    result = await second
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"first\ngiven\nlast\n", b"wrong\n")
    assert b"".join(seen).count(b"first\n") == 1
    assert (await first).exit_code == 3
    late = await again.exec(["false"], key="it", timeout_s=60)
    assert (late.exit_code, late.stdout) == (3, result.stdout)
    assert await sh(again, "cat runs") == "run\n"
    await other.close()


@pytest.mark.spec("SB-66")
async def test_a_command_with_a_key_keeps_to_its_time_and_its_bounds(
    backend: SandboxBackend, require: Require, tmp_path: Path
) -> None:
    require("detached")
    one = await backend.create(SandboxSpec(name="one"))
    result = await one.exec(["sh", "-c", "setsid sleep 600 & sleep 600"], key="slow", timeout_s=1)
    assert result.timed_out and result.exit_code is None
    assert await sh(one, "pgrep -c sleep || true") == "0\n"
    killed = await one.exec(["sh", "-c", "kill -9 $$"], key="killed", timeout_s=20)
    assert killed.exit_code == -9
    much = await one.exec(["sh", "-c", "head -c 100000 /dev/zero"], key="much", timeout_s=20, max_output=10)
    assert (len(much.stdout), much.truncated) == (10, True)
    left = await one.exec(["sh", "-c", "sleep 600 & echo up"], key="left", timeout_s=20)
    assert left.stdout == b"up\n"
    target = tmp_path / "out"
    await one.exec(["echo", "there"], key="file", timeout_s=20, stdout_to=target)
    assert target.read_bytes() == b"there\n"


@pytest.mark.spec("SB-66")
async def test_a_command_with_a_key_that_was_ended_is_not_run_again(
    backend: SandboxBackend, require: Require
) -> None:
    require("detached")
    one = await backend.create(SandboxSpec(name="one"))
    running = asyncio.ensure_future(
        one.exec(["sh", "-c", "echo run >> /work/runs; sleep 600"], key="it", timeout_s=600)
    )
    await until(lambda: there(one, "/work/runs"))
    await one.kill_all()
    with pytest.raises(SandboxError):
        await running
    with pytest.raises(SandboxError, match="did not come to its end"):
        await one.exec(["sh", "-c", "echo run >> /work/runs"], key="it", timeout_s=20)
    stopped = asyncio.ensure_future(one.exec(["sleep", "600"], key="cancelled", timeout_s=600))
    await until(lambda: busy(one))
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert await sh(one, "pgrep -c sleep || true; cat runs") == "0\nrun\n"


async def busy(sandbox: Sandbox) -> bool:
    return (await sandbox.exec(["pgrep", "sleep"], timeout_s=20)).ok
