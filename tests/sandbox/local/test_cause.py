"""Hosts that forbid sandboxes, made here: the doctor says which of them it is on, and what to do."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironworks.sandbox.docker.address import answering_engine
from ironworks.sandbox.local import cause
from ironworks.sandbox.local.cause import Failure, first_failure, namespace_fix

EXAMINE = """
import json, sys
from pathlib import Path
from ironworks.sandbox.local import LocalBackend
checks = LocalBackend(Path(sys.argv[1])).doctor()
print(json.dumps({check.name: check.fix for check in checks if not check.ok}))
"""
FILTERED = """
import ctypes, struct
from ironworks.sandbox.local.seccomp import seccomp_filter
program = ctypes.create_string_buffer(seccomp_filter())
class Program(ctypes.Structure): _fields_ = [("size", ctypes.c_ushort), ("at", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, ctypes.addressof(program)))) == 0
"""


def examined(
    state: Path, *around: str, before: str = "", env: dict[str, str] | None = None
) -> dict[str, str]:
    """What the doctor finds lacking, in surroundings that `around` and `before` make."""
    command = [*around, sys.executable, "-c", before + EXAMINE, str(state)]
    clean = {"PATH": os.environ["PATH"], "HOME": str(state), **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=clean)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
def unshare() -> list[str]:
    found = shutil.which("unshare")
    if found is None or first_failure() != Failure("all", 0):
        pytest.skip("needs unshare and a host that lets us make user namespaces")
    return [found, "--user", "--map-root-user", "--mount", "sh", "-ec"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """A socket behind which an engine answers its ping."""
    path = f"/tmp/engine-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        threading.Thread(target=pong, args=(server,), daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
    os.unlink(path)  # noqa: PTH108


def pong(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            asked = client.recv(999)
            known = asked.startswith(b"GET /_ping ")
            client.sendall(b"HTTP/1.0 200 OK\r\n\r\nOK" if known else b"HTTP/1.0 404 Not Found\r\n\r\n")


@pytest.mark.slow
@pytest.mark.spec("SB-40")
def test_a_filter_around_us_is_told_as_a_container_is(tmp_path: Path) -> None:
    found = examined(tmp_path, before=FILTERED)
    assert "seccomp=unconfined" in found["namespaces"]
    assert "docker backend" not in found["namespaces"]


@pytest.mark.slow
@pytest.mark.spec("SB-40")
def test_a_host_without_a_single_user_namespace_is_told_its_setting(
    tmp_path: Path, unshare: list[str], engine: str
) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    found = examined(tmp_path, *unshare, script, "sh", env={"DOCKER_HOST": f"unix://{engine}"})
    assert "sysctl -w user.max_user_namespaces=" in found["namespaces"]
    assert f"or use the docker backend: an engine answers at {engine}" in found["namespaces"]


@pytest.mark.slow
@pytest.mark.spec("SB-40")
def test_a_file_system_that_carries_no_overlay_is_told_by_its_name(
    tmp_path: Path, unshare: list[str]
) -> None:
    """An overlay cannot carry another one's changes: the state is on one, as in a container."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work,userxattr"
    script = f'mount -t overlay none -o {options} {tmp_path}/merged; mkdir {tmp_path}/merged/state; exec "$@"'
    found = examined(tmp_path / "merged" / "state", *unshare, script, "sh")
    assert list(found) == ["overlay"]
    assert "--state DIR" in found["overlay"]
    assert "is on overlay" in found["overlay"]


@pytest.mark.spec("SB-40")
def test_on_a_capable_host_no_step_fails() -> None:
    done = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs a host that lets us make user namespaces")
    assert first_failure() == Failure("all", 0)


@pytest.mark.spec("SB-40")
@pytest.mark.parametrize(
    ("failure", "settings", "expected"),
    [
        (Failure("user", errno.ENOSPC), {}, "user.max_user_namespaces=15000"),
        (Failure("user", errno.EINVAL), {}, "CONFIG_USER_NS"),
        (Failure("user", errno.EPERM), {"UNPRIVILEGED": "0"}, "kernel.unprivileged_userns_clone=1"),
        (Failure("mount", errno.EPERM), {"APPARMOR": "1"}, "apparmor_parser -r /etc/apparmor.d/ironworks"),
        (Failure("map", errno.EACCES), {"APPARMOR": "1"}, "profile ironworks /opt/bwrap flags=(unconfined)"),
        (Failure("user", errno.EPERM), {"APPARMOR": "0", "UNPRIVILEGED": "1"}, "run as root"),
        (Failure("user", errno.EPERM), {"USER_NAMESPACES": "0"}, "user.max_user_namespaces=15000"),
    ],
)
def test_every_way_to_fail_has_its_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Failure,
    settings: dict[str, str],
    expected: str,
) -> None:
    monkeypatch.setattr(cause, "CONTAINER_MARKS", ())
    if cause.filtered():
        pytest.skip("needs surroundings without a filter of system calls")
    for name in ("UNPRIVILEGED", "APPARMOR", "USER_NAMESPACES"):
        monkeypatch.setattr(cause, name, tmp_path / name)
        if name in settings:
            (tmp_path / name).write_text(settings[name] + "\n")
    assert expected in namespace_fix(failure, "/opt/bwrap")


@pytest.mark.spec("SB-40")
def test_the_profile_is_written_as_a_shell_prints_it(tmp_path: Path) -> None:
    command = cause.apparmor_fix("/opt/bwrap").partition("as root: ")[2].partition(" > ")[0]
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert printed == (
        "abi <abi/4.0>,\ninclude <tunables/global>\n"
        "profile ironworks /opt/bwrap flags=(unconfined) {\n  userns,\n}\n"
    )


@pytest.mark.spec("SB-40")
def test_only_an_engine_that_answers_is_offered(tmp_path: Path, engine: str) -> None:
    silent = tmp_path / "nothing.sock"
    silent.touch()
    assert answering_engine([str(silent), str(tmp_path / "none"), "tcp://127.0.0.1:1"]) is None
    assert answering_engine([str(silent), engine]) == engine


@pytest.mark.spec("SB-40")
def test_an_old_kernel_is_named_where_not_even_memory_carries_an_overlay(tmp_path: Path) -> None:
    assert os.uname().release in cause.overlay_fix(tmp_path, in_memory=False)
    assert str(tmp_path) in cause.overlay_fix(tmp_path, in_memory=True)
