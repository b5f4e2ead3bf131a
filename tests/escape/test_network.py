"""Ways to other machines and to the host's own ports. Every target is on loopback."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.contract.sandbox.commands import sh
from tests.escape.place import PRELUDE, got_out, held, outcomes, outside, private

from ironworks.core.ports import GATEWAY_PORT, Sandbox, SandboxBackend, SandboxSpec

TCP = """
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    attempt(target, lambda: socket.create_connection((host, int(port)), 5).close())
"""
UDP = """
def ask(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(2)
        asking.connect((host, port))
        asking.send(b"?")
        return asking.recv(9)
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    attempt(target, ask, host, int(port))
"""
ABSTRACT = """
def call(kind):
    with socket.socket(socket.AF_UNIX, kind) as caller: caller.connect("\\0" + sys.argv[1])
attempt("stream", call, socket.SOCK_STREAM)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("datagram", lambda: sender.connect("\\0" + sys.argv[1] + "-datagram"))
attempt("path", lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[2]))
attempt("listed", lambda: open("/proc/net/unix").read().find(sys.argv[1]) >= 0)
"""
ROUTES = """
import struct
def change(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.send(struct.pack("=IHHII", 16 + len(body), kind, 0x405, 1, 0) + body)
        answer = route.recv(4096)
    error = struct.unpack_from("=i", answer, 16)[0]
    if error: raise OSError(-error, os.strerror(-error))
attempt("link", change, 19, struct.pack("=BBHiII", 0, 0, 0, 1, 1, 1))
attempt("route", change, 24, struct.pack("=8BIHHI", 2, 0, 0, 0, 255, 3, 254, 2, 0, 8, 4, 1))
attempt("address", change, 20, struct.pack("=4BIHH4B", 2, 32, 0, 0, 1, 8, 2, 127, 9, 9, 9))
"""
CONNECT = 'import socket; socket.create_connection(("127.0.0.1", {}), 5)'
LISTENING = """
python3 -I -c '
import os, socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
if os.fork() == 0:
    os.setsid(); os.close(1); os.close(2); time.sleep(60)
'
"""


@pytest.fixture
def tcp_targets() -> Iterator[list[str]]:
    """Servers of the host that answer, on more than one address."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server((f"127.0.0.{n}", 0))) for n in (1, 2, 3)]
        yield ["{}:{}".format(*server.getsockname()) for server in servers]


@pytest.fixture
def udp_targets() -> Iterator[list[str]]:
    """Two sockets of the host that answer whatever asks: one of them as a name server might."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in (1, 53):
            server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            server.bind((f"127.0.0.{number}", 0))
            threading.Thread(target=echo, args=(server,), daemon=True).start()
            servers.append(server)
        yield ["{}:{}".format(*server.getsockname()) for server in servers]
        for server in servers:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", server.getsockname())


def echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, who = server.recvfrom(99)
            if not data:
                return
            server.sendto(data, who)


@pytest.mark.spec("SB-14")
async def test_no_tcp_port_of_the_host_answers(sandbox: Sandbox, tcp_targets: list[str]) -> None:
    await held(sandbox, TCP, *tcp_targets, weak=outside)


@pytest.mark.spec("SB-14")
async def test_no_udp_port_and_no_name_server_answers(sandbox: Sandbox, udp_targets: list[str]) -> None:
    await held(sandbox, UDP, *udp_targets, weak=outside)


@pytest.mark.spec("SB-14")
async def test_no_unix_socket_of_the_host_is_reached_by_name_or_path(sandbox: Sandbox) -> None:
    name = f"ironworks-escape-{os.getpid()}"
    path = f"/tmp/{name}"
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        socket.socket(socket.AF_UNIX) as named,
    ):
        stream.bind(f"\0{name}")
        datagram.bind(f"\0{name}-datagram")
        named.bind(path)
        try:
            stream.listen()
            named.listen()
            await held(sandbox, ABSTRACT, name, path, weak=outside)
        finally:
            os.unlink(path)  # noqa: PTH108


@pytest.mark.spec("SB-14")
async def test_the_network_inside_cannot_be_changed(sandbox: Sandbox) -> None:
    await held(sandbox, ROUTES, weak=private)


@pytest.mark.spec("SB-14")
async def test_sandboxes_do_not_reach_each_other(backend: SandboxBackend) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    server = "python3 -I -m http.server 8088 --bind 127.0.0.1 >/dev/null 2>&1 & "
    await sh(two, f"{server} until python3 -I -c '{CONNECT.format(8088)}' 2>/dev/null; do sleep 0.05; done")
    # The very same probe gets out where the server is: in its own sandbox.
    for place, expected in ((one, False), (two, True)):
        argv = ["/usr/bin/python3", "-I", "-c", PRELUDE + TCP, "127.0.0.1:8088"]
        said = await place.exec(argv, timeout_s=30)
        assert bool(got_out(outcomes(said.stdout.decode()))) is expected, said.text()
    await two.kill_all()


@pytest.mark.spec("SB-14")
async def test_a_port_that_a_command_opens_is_not_open_on_the_host(sandbox: Sandbox) -> None:
    """Also not the gateway's own number, which is free for everyone on the host."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", GATEWAY_PORT)))
        answer = await sandbox.exec(
            ["/usr/bin/python3", "-c", f"import socket; socket.create_server(('127.0.0.1', {GATEWAY_PORT}))"],
            timeout_s=20,
        )
        assert b"Address already in use" in answer.stderr  # the listener inside has it, not the host's
    port = int((await sh(sandbox, LISTENING)).strip())
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5):
        pass
    assert await sh(sandbox, f"python3 -I -c '{CONNECT.format(port)}'") == ""
    await sandbox.kill_all()
