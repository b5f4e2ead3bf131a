"""Real programs that know no proxy, in a real sandbox, through the real gateway, to servers on loopback."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.sandbox.commands import sh
from tests.egress.conftest import OpenBox, grant, open_box

from ironworks.core.models import ExecResult
from ironworks.core.ports import Sandbox, SandboxSpec
from ironworks.sandbox.local import LocalBackend

__all__ = ["open_box"]
SERVER = "127.0.0.77"
"""Where the allowed host is: its names lead there by the operator's word."""
GREETING = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
URLLIB = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/work/authority.pem")
print(urllib.request.urlopen(sys.argv[1], timeout=30, context=context).read().decode())
"""
FETCH = """
const failed = error => { console.log(error.cause.code); process.exit(1) }
fetch(process.argv[1]).then(r => r.text()).then(console.log, failed)
"""
ALLOWED = (f"allowed.example={SERVER}", f"allowed.example:80={SERVER}")
pytestmark = pytest.mark.slow


@pytest.fixture
async def transparent(tmp_path: Path) -> AsyncIterator[Sandbox]:
    backend = LocalBackend(tmp_path / "state")
    if "transparent" not in backend.capabilities():
        pytest.skip("needs the capability transparent")
    yield await backend.create(SandboxSpec(name="one", transparent=True))
    await backend.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Path]:
    """The allowed host, at both ports; gives the certificate that its clients must trust."""
    openssl = shutil.which("openssl") or pytest.skip("needs openssl, to make a certificate")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=allowed.example", "-addext", "subjectAltName=DNS:allowed.example"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    make = [openssl, "req", *kind, *subject, *files]
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with contextlib.AsyncExitStack() as stack:
        for port, tls in ((80, None), (443, context)):
            try:
                server = await asyncio.start_server(serve, SERVER, port, ssl=tls)
            except OSError as error:
                pytest.skip(f"needs to listen at {SERVER}:{port}: {error.strerror}")
            await stack.enter_async_context(server)
        yield certificate


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GREETING)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def connected(open_box: OpenBox, sandbox: Sandbox) -> AsyncIterator[Any]:
    async with open_box(grant=grant(allow=ALLOWED), ways=sandbox.ways) as box:
        yield box


async def fetched(sandbox: Sandbox, program: str, url: str) -> ExecResult:
    """By a program that has been told of no proxy."""
    argv = ["python3", "-c", URLLIB] if program == "urllib" else ["node", "-e", FETCH]
    return await sandbox.exec([*argv, url], env={"NODE_EXTRA_CA_CERTS": "/work/authority.pem"}, timeout_s=60)


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize("program", ["urllib", "fetch"])
async def test_a_program_that_knows_no_proxy_reaches_an_allowed_host_and_no_other(
    open_box: OpenBox, transparent: Sandbox, servers: Path, program: str
) -> None:
    if program == "fetch" and shutil.which("node") is None:
        pytest.skip("needs node")
    await transparent.put("/work/authority.pem", await asyncio.to_thread(servers.read_bytes))
    async with connected(open_box, transparent) as box:
        for scheme in ("http", "https"):
            reached = await fetched(transparent, program, f"{scheme}://allowed.example/")
            assert (reached.exit_code, reached.stdout) == (0, b"hello\n"), reached.text()
        for url in ("https://denied.example/", "https://192.0.2.1/"):
            refused = await fetched(transparent, program, url)
            assert refused.exit_code == 1
            assert b"hello" not in refused.stdout
        targets = [event.model_dump()["target"] for event in box.events_of("EgressDenied")]
        assert targets == ["TLS denied.example", "TLS without a name"]


@pytest.mark.spec("SB-39")
async def test_without_it_the_same_programs_reach_nothing(
    tmp_path: Path, open_box: OpenBox, servers: Path
) -> None:
    backend = LocalBackend(tmp_path / "state")
    sandbox = await backend.create(SandboxSpec(name="one"))
    await sandbox.put("/work/authority.pem", await asyncio.to_thread(servers.read_bytes))
    assert sandbox.ways is None
    refused = await fetched(sandbox, "urllib", "https://allowed.example/")
    assert b"Name or service not known" in refused.stderr or b"Temporary failure" in refused.stderr
    await backend.close()


@pytest.mark.spec("SB-39")
async def test_all_other_ports_are_the_projects_own(transparent: Sandbox) -> None:
    script = """
    python3 -m http.server 3000 --bind 127.0.0.1 >/dev/null 2>&1 &
    python3 -m http.server 5173 >/dev/null 2>&1 &
    for url in http://localhost:3000/ http://127.0.0.1:5173/; do
      until python3 -c "import urllib.request as u; print(u.urlopen('$url').status)" 2>/dev/null; do
        sleep 0.1
      done
    done
    python3 -c "import socket; socket.create_connection(('192.0.2.1', 22), 5)" 2>&1 | tail -1
    """
    said = (await sh(transparent, script, timeout_s=60)).splitlines()
    assert said == ["200", "200", "ConnectionRefusedError: [Errno 111] Connection refused"]
    await transparent.kill_all()


@pytest.mark.spec("SB-39")
async def test_commands_hold_no_more_privilege_and_pid_1_keeps_none(transparent: Sandbox) -> None:
    said = await sh(transparent, "grep -h ^Cap /proc/self/status /proc/1/status; unshare -Ur true 2>&1; true")
    lines = said.splitlines()
    assert [line.split()[1] for line in lines[:10]] == ["0" * 16] * 10
    assert "Operation not permitted" in lines[10]
    for program in ("ip route add local 10.0.0.0/8 dev lo", "ip link set lo down"):
        refused = await transparent.exec(["sh", "-c", program], timeout_s=20)
        assert not refused.ok, program


@pytest.mark.spec("SB-39")
async def test_the_listeners_of_two_sandboxes_are_not_each_others(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "state")
    if "transparent" not in backend.capabilities():
        pytest.skip("needs the capability transparent")
    one, two = [await backend.create(SandboxSpec(name=name, transparent=True)) for name in ("one", "two")]
    calls = [sandbox.exec(["python3", "-c", CALL], timeout_s=30) for sandbox in (one, two)]
    said = asyncio.gather(*calls)
    for sandbox in (two, one):
        assert sandbox.ways is not None
        sandbox.ways.tls.setblocking(False)
        connection, _ = await asyncio.get_running_loop().sock_accept(sandbox.ways.tls)
        with connection:
            connection.sendall(sandbox.name.encode())
    assert [result.stdout for result in await said] == [b"one\n", b"two\n"]
    await backend.close()
    assert [sandbox.ways.names.fileno() for sandbox in (one, two) if sandbox.ways] == [-1, -1]


CALL = "import socket; print(socket.create_connection(('203.0.113.5', 443), 20).recv(9).decode())"
