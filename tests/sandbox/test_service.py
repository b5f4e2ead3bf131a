import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ironworks.core.ports import Sandbox, SandboxSpec
from ironworks.core.settings import ServiceSettings
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.service import ServiceFailed, services

SERVER = """python3 -c '
import os, socket
server = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
while True:
    caller, _ = server.accept()
    caller.sendall(os.environ["GREETING"].encode())
    caller.close()
'"""
ASK = "import socket; print(socket.create_connection(('127.0.0.1', 7000), 5).recv(99).decode())"
DATA = "/home/agent/data"
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    made = LocalBackend(tmp_path / "sandboxes")
    if "create" not in made.capabilities():
        pytest.skip("needs user namespaces and overlays: see `ironworks doctor`")
    yield made
    await made.close()


@pytest.fixture
async def sandbox(backend: LocalBackend) -> Sandbox:
    return await backend.create(SandboxSpec(name="one"))


async def said(sandbox: Sandbox, *argv: str) -> str:
    result = await sandbox.exec(argv, timeout_s=30)
    return result.text().strip()


def server(**more: object) -> ServiceSettings:
    known = {"command": SERVER, "ready": 7000, "env": {"GREETING": "hello"}}
    return ServiceSettings.model_validate({**known, **more})


@pytest.mark.spec("SB-74")
async def test_a_service_answers_in_the_block_and_is_gone_after_it(sandbox: Sandbox) -> None:
    async with services(sandbox, {"greeter": server()}) as (greeter,):
        assert await said(sandbox, "python3", "-c", ASK) == "hello"
        assert greeter.ending() == ""
    assert "refused" in await said(sandbox, "python3", "-c", ASK)


@pytest.mark.spec("SB-74")
async def test_each_sandbox_has_its_own_at_the_same_port(backend: LocalBackend) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    async with (
        services(one, {"greeter": server(env={"GREETING": "one"})}),
        services(two, {"greeter": server(env={"GREETING": "two"})}),
    ):
        answers = [await said(each, "python3", "-c", ASK) for each in (one, two)]
    assert answers == ["one", "two"]


@pytest.mark.spec("SB-74")
async def test_services_start_in_order_and_a_command_can_say_that_one_is_ready(sandbox: Sandbox) -> None:
    first = ServiceSettings(command="sleep 0.5; echo up > first; sleep 600", ready="test -s first")
    second = ServiceSettings(command="cat first > second; sleep 600", ready="test -s second")
    async with services(sandbox, {"first": first, "second": second}):
        assert await said(sandbox, "cat", "/work/second") == "up"


@pytest.mark.spec("SB-75")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"command": "echo no disk >&2; exit 3"}, ["greeter ended (exit code 3)", "no disk"]),
        ({"command": "echo waiting; sleep 600", "timeout_s": 1}, ["not ready within 1 s", "waiting"]),
        ({"command": "no-such-program-here"}, ["exit code 127", "not found"]),
    ],
)
async def test_one_that_does_not_become_ready_is_told_with_its_last_words(
    sandbox: Sandbox, more: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(ServiceFailed) as failed:
        async with services(sandbox, {"greeter": server(**more)}):
            raise AssertionError("it is not ready")
    assert [word for word in words if word not in failed.value.message] == []
    assert "sleep" not in await said(sandbox, "sh", "-c", "cat /proc/[0-9]*/comm")


@pytest.mark.spec("SB-75")
async def test_one_that_ends_in_the_middle_is_told(sandbox: Sandbox) -> None:
    async with services(sandbox, {"greeter": server()}) as (greeter,):
        await sandbox.exec(["sh", "-c", "kill -9 $(pidof python3 || pgrep python3)"], timeout_s=20)
        for _ in range(200):
            if greeter.ending():
                break
            await asyncio.sleep(0.05)
        assert "greeter ended" in greeter.ending() and "listening" in greeter.ending()


@pytest.mark.slow
@pytest.mark.spec("SB-74")
@pytest.mark.skipif(POSTGRES is None, reason="needs PostgreSQL's server programs")
@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user: PostgreSQL refuses root")
async def test_a_real_database_serves_the_tests_of_a_sandbox(sandbox: Sandbox) -> None:
    assert POSTGRES is not None and shutil.which("psql")
    start = f"{POSTGRES}/initdb -D {DATA} -U agent >/dev/null && exec {POSTGRES}/postgres -D {DATA} -k /tmp"
    database = ServiceSettings(command=start, ready="psql -h /tmp -U agent -c 'select 1' postgres")
    async with services(sandbox, {"db": database}):
        assert (
            await said(sandbox, "psql", "-h", "/tmp", "-U", "agent", "-Atc", "select 6 * 7", "postgres")
            == "42"
        )
