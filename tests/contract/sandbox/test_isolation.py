"""What a hostile command can reach: nothing. `tests/escape` tries more, and proves that it can fail."""

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import py, sh
from tests.contract.sandbox.conftest import Require

from ironworks.core.ports import GATEWAY_PORT, Sandbox, SandboxBackend, SandboxSpec
from ironworks.sandbox.docker import DockerBackend


@pytest.fixture(autouse=True)
def _of_ours(require: Require) -> None:
    """What a hosted service lets through is its own to promise."""
    require("listener")


ATTEMPT = """
import socket
def attempt(family, kind, address):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(3)
            s.connect(address)
            print("REACHED", address)
    except OSError as error:
        print(type(error).__name__, error.errno)
"""


@pytest.mark.spec("SB-14")
async def test_the_gateway_port_reaches_the_host_and_tells_sandboxes_apart(backend: SandboxBackend) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    call = (
        f"import socket; print(socket.create_connection(('127.0.0.1', {GATEWAY_PORT}), 20).recv(99).decode())"
    )
    for sandbox in (one, two):
        threading.Thread(target=greet, args=(sandbox.listener, sandbox.name), daemon=True).start()
    assert (await py(one, call), await py(two, call)) == ("one\n", "two\n")


def greet(listener: socket.socket, name: str) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(name.encode())


@pytest.mark.spec("SB-14")
async def test_no_other_machine_has_a_route(sandbox: Sandbox) -> None:
    # Connecting a datagram socket sends nothing; it only asks for the route.
    script = ATTEMPT + (
        "for port in (53, 443): attempt(socket.AF_INET, socket.SOCK_DGRAM, ('192.0.2.1', port))\n"
        "attempt(socket.AF_INET6, socket.SOCK_DGRAM, ('2001:db8::1', 53))\n"
        "print([line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:]])\n"
        "print(len(open('/proc/net/route').readlines()) - 1)\n"
    )
    # 99: where a container has no IPv6 at all.
    found = (await py(sandbox, script)).replace("OSError 99", "OSError 101")
    assert found == "OSError 101\n" * 3 + "['lo']\n0\n"


@pytest.mark.spec("SB-14")
async def test_no_name_is_looked_up(sandbox: Sandbox) -> None:
    script = (
        "import socket\nprint(socket.gethostbyname('localhost'))\n"
        "try: print(socket.getaddrinfo('registry.example', 443))\nexcept socket.gaierror: print('unknown')"
    )
    assert await py(sandbox, script) == "127.0.0.1\nunknown\n"


@pytest.mark.spec("SB-14")
async def test_only_unix_internet_and_netlink_sockets_can_be_made(sandbox: Sandbox) -> None:
    script = (
        "import socket\nfor family, kind in ((1,1),(2,1),(10,1),(16,3),(40,1),(17,3),(38,5),(15,3),(31,3)):\n"
        " try: socket.socket(family, kind).close(); print(family, 'made')\n"
        " except OSError as e: print(family, e.errno)"
    )
    made = "".join(f"{family} made\n" for family in (1, 2, 10, 16))
    assert await py(sandbox, script) == made + "".join(f"{family} 97\n" for family in (40, 17, 38, 15, 31))


@pytest.mark.spec("SB-15")
async def test_files_of_the_host_are_not_there(
    backend: SandboxBackend, sandbox: Sandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sk-test-host")
    paths = [
        str(secret),
        str(Path.home()),
        "/etc/shadow",
        "/var/lib",
        "/sys/kernel",
        "/boot",
        str(Path.cwd() / "src"),
    ]
    if isinstance(backend, DockerBackend):
        paths = [
            path for path in paths if path not in {"/var/lib", "/boot", str(Path.home())}
        ]  # an image has its own
    existing = [path for path in paths if os.path.exists(path)]  # noqa: ASYNC240, PTH110
    assert str(secret) in existing
    script = (
        "import os,sys\nfor p in sys.argv[1:]: print(os.path.isdir(p) and os.listdir(p) or os.path.exists(p))"
    )
    result = await sandbox.exec(["/usr/bin/python3", "-c", script, *existing], timeout_s=20)
    shown = result.stdout.decode().splitlines()
    assert result.exit_code == 0
    # A home may show the folder that leads to a toolchain, and nothing else.
    for path, found in zip(existing, shown, strict=True):
        assert found == "False" or (path == str(Path.home()) and found.count(",") == 0), (path, found)


@pytest.mark.spec("SB-15")
async def test_folders_of_the_host_cannot_be_written(sandbox: Sandbox) -> None:
    script = (
        "for d in /usr /usr/bin /etc / /lib /dev /proc /home /run/pid1*; do"
        " touch $d/x 2>/dev/null && echo $d; done; true"
    )
    assert await sh(sandbox, script) == ""
    assert (
        await sh(sandbox, "echo x > $(ls /run/pid1*) || echo x > /etc/hosts || echo refused") == "refused\n"
    )


@pytest.mark.spec("SB-15")
async def test_processes_of_the_host_and_of_other_sandboxes_are_not_there(backend: SandboxBackend) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    sleeping = asyncio.create_task(two.exec(["sleep", "609"], timeout_s=60))
    while "sleep" not in await sh(two, "cat /proc/[0-9]*/comm"):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    pids = (await sh(one, "ls -d /proc/[0-9]*; cat /proc/[0-9]*/comm")).split()
    assert "sleep" not in pids
    assert f"/proc/{os.getpid()}" not in pids
    assert await sh(one, "kill -9 -1 2>/dev/null; echo") is not None
    await two.kill_all()
    await sleeping


@pytest.mark.spec("SB-15")
async def test_pid_1_cannot_be_read_traced_or_ended(sandbox: Sandbox) -> None:
    script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in ("environ", "mem", "maps", "fd/0", "root", "cwd"):
    try: (os.listdir if name in ("root", "cwd") else open)("/proc/1/" + name); print("OPENED", name)
    except PermissionError: print("refused", name)
print(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())
for number in (9, 19, 15, 17):
    os.kill(1, number)
print("alive")
"""
    refused = "".join(f"refused {name}\n" for name in ("environ", "mem", "maps", "fd/0", "root", "cwd"))
    assert await py(sandbox, script) == refused + "-1 1\nalive\n"
    assert await sh(sandbox, "echo still") == "still\n"


@pytest.mark.spec("SB-16")
async def test_commands_hold_no_privilege_and_cannot_gain_one(sandbox: Sandbox) -> None:
    status = dict(
        line.split(":\t")
        for line in (await sh(sandbox, "cat /proc/self/status")).splitlines()
        if ":\t" in line
    )
    empty = {key: value for key, value in status.items() if key.startswith("Cap")}
    assert len(empty) == 5
    assert set(empty.values()) == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.spec("SB-16")
async def test_calls_that_lead_out_of_the_namespaces_are_refused(sandbox: Sandbox) -> None:
    script = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, *arguments):
    result = getattr(libc, name)(*arguments)
    print(name, result if result >= 0 else ctypes.get_errno())
for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
    attempt("unshare", flag)
attempt("mount", b"x", b"/tmp", b"tmpfs", 0, 0)
attempt("umount2", b"/usr", 2)
attempt("setns", 0, 0)
attempt("mknod", b"/tmp/disk", 0o60666, 254 << 8)
attempt("chroot", b"/tmp")
attempt("sethostname", b"x", 1)
attempt("syscall", {"x86_64": 250, "aarch64": 219}[platform.machine()], 0, 0, 0, 0, 0)
attempt("syscall", {"x86_64": 321, "aarch64": 280}[platform.machine()], 0, 0, 0)
attempt("syscall", 425, 1, 0)
attempt("syscall", 435, 0, 0)
attempt("ioctl", 0, 0x5412, b"x")
print(len(os.listdir("/tmp")))
"""
    expected = ["unshare 1"] * 7 + ["mount 1", "umount2 1", "setns 1", "mknod 1", "chroot 1", "sethostname 1"]
    expected += ["syscall 1", "syscall 1", "syscall 38", "syscall 38", "ioctl 1", "0"]
    assert (await py(sandbox, script)).splitlines() == expected


@pytest.mark.spec("SB-16")
async def test_devices_are_few_and_harmless(sandbox: Sandbox) -> None:
    devices = set((await sh(sandbox, "ls /dev")).split())
    links = {"core", "fd", "stdin", "stdout", "stderr", "ptmx", "pts", "shm", "console"}
    # Message queues are the container's own, as its other means to talk between processes are.
    assert devices - links - {"mqueue"} == {"full", "null", "random", "tty", "urandom", "zero"}
