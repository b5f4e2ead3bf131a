"""`ironworks sandbox` as people call it: a process each time, the sandboxes in the background."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ironworks.app.backend import make_backend
from ironworks.app.keep import Kept, end, is_kept, names
from ironworks.core.settings import SandboxSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Said(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Calls the verbs on one state folder, from an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.folder = folder / "here"
        self.folder.mkdir()

    def start(self, verb: str, *words: str, **how: Any) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "ironworks", "sandbox", verb, "--state", str(self.state), *words]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, cwd=self.folder, env=env, **{**pipes, **how})

    def __call__(self, verb: str, *words: str, stdin: bytes = b"") -> Said:
        process = self.start(verb, *words)
        out, err = process.communicate(stdin, timeout=120)
        return Said(process.returncode, out, err.decode())

    def did(self, verb: str, *words: str, stdin: bytes = b"") -> bytes:
        said = self(verb, *words, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def keeper(self, name: str) -> int:
        found = subprocess.run(
            ["pgrep", "-f", f"ironworks.app.keeper {self.state} {name} "], capture_output=True, timeout=20
        )
        return int(found.stdout.split()[0])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    if "create" not in make_backend(SandboxSettings(), tmp_path / "probe").capabilities():
        pytest.skip("needs user namespaces and overlays: see `ironworks doctor`")
    made = Shell(tmp_path)
    yield made
    for name in names(made.state):
        end(Kept(made.state, name))


@pytest.mark.spec("SB-70")
def test_a_sandbox_made_by_hand_is_there_from_call_to_call(shell: Shell) -> None:
    assert shell.did("create", "--env", "A=b c", "one") == b"one\n"
    shell.did("exec", "one", "sh", "-c", "sleep 600 & echo $! > pid; echo $A > a")
    assert shell.did("exec", "one", "--", "sh", "-c", "kill -0 $(cat pid); cat a") == b"b c\n"
    listed = shell("ls", "--json").json
    assert [(box["name"], box["running"]) for box in listed["sandboxes"]] == [("one", True)]
    assert "one" in shell.did("ls").decode() and shell("usage", "one", "--json").json["disk_bytes"] > 0

    shell.did("rm", "one")

    assert shell("ls", "--json").json == {"sandboxes": [], "snapshots": []}
    assert list((shell.state / "keepers").iterdir()) == []


@pytest.mark.spec("SB-70")
def test_a_sandbox_whose_keeper_was_killed_is_booted_again_on_its_disk(shell: Shell) -> None:
    shell.did("create", "one", "--env", "KEPT=yes")
    shell.did("exec", "one", "sh", "-c", "echo here > file")
    pid = shell.keeper("one")
    os.kill(pid, signal.SIGKILL)
    while is_kept(Kept(shell.state, "one")):
        time.sleep(0.02)
    assert shell("ls", "--json").json["sandboxes"][0]["running"] is False

    assert shell.did("exec", "one", "sh", "-c", "cat file; echo $KEPT") == b"here\nyes\n"
    assert shell.keeper("one") != pid


@pytest.mark.spec("SB-70")
def test_callers_at_once_share_one_keeper_also_while_it_starts(shell: Shell) -> None:
    shell.did("create", "one")
    os.kill(shell.keeper("one"), signal.SIGKILL)
    calls = [shell.start("exec", "one", "sh", "-c", f"echo {number}") for number in range(4)]
    said = [call.communicate(timeout=120) for call in calls]
    assert [out for out, _ in said] == [b"0\n", b"1\n", b"2\n", b"3\n"], said


@pytest.mark.spec("SB-71")
def test_exec_passes_on_input_output_exit_code_and_the_place(shell: Shell) -> None:
    shell.did("create", "one")
    data = bytes(range(256)) * 1000
    assert shell.did("exec", "-i", "one", "cat", stdin=data) == data
    said = shell("exec", "--cwd", "/tmp", "--env", "X=1", "one", "sh", "-c", "pwd; echo $X >&2; exit 7")
    assert said == (7, b"/tmp\n", "1\n")
    assert shell("exec", "one", "sh", "-c", "kill -9 $$").code == 128 + 9
    assert shell("exec", "--timeout", "1s", "one", "sleep", "60").code == 124
    told = shell("exec", "--json", "one", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert told.code == told.json["exit_code"] == 3
    assert (told.json["stdout"], told.json["stderr"]) == ("out\n", "err\n")
    with shell.start("exec", "one", "head", "-c", "300000000", "/dev/zero") as big:
        assert big.stdout is not None
        size = 0
        while part := big.stdout.read(1 << 20):
            size += len(part)
    assert (size, big.returncode) == (300_000_000, 0)


@pytest.mark.spec("SB-71")
def test_a_caller_that_is_interrupted_ends_its_command_and_no_other(shell: Shell) -> None:
    shell.did("create", "one")
    shell.did("exec", "one", "sh", "-c", "sleep 601 & echo started")
    call = shell.start("exec", "one", "sh", "-c", "echo up; exec sleep 600")
    assert call.stdout is not None and call.stdout.readline() == b"up\n"
    call.send_signal(signal.SIGINT)
    call.communicate(timeout=30)
    assert call.returncode == 130
    left = ""
    for _ in range(100):
        left = shell.did("exec", "one", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").decode()
        if "sleep 600" not in left:
            break
    assert "sleep 600" not in left and "sleep 601" in left


@pytest.mark.spec("SB-71")
def test_files_go_in_and_out_with_their_bytes_and_permissions(shell: Shell, tmp_path: Path) -> None:
    shell.did("create", "one")
    source = shell.folder / "-f \U0001f600"
    source.write_bytes(b"\0\xff" * 100_000)
    source.chmod(0o750)
    shell.did("put", "one", "--", source.name, "deep/er/")
    assert shell.did("exec", "one", "stat", "-c", "%a", f"deep/er/{source.name}") == b"750\n"
    assert shell.did("get", "one", f"/work/deep/er/{source.name}") == source.read_bytes()
    shell.did("get", "one", f"deep/er/{source.name}", str(tmp_path))
    assert (tmp_path / source.name).read_bytes() == source.read_bytes()
    shell.did("put", "one", "-", "x", "--mode", "600", stdin=b"piped")
    assert shell("get", "one", "x", str(tmp_path / "y"), "--json").json["bytes"] == 5

    (shell.folder / "folder").mkdir()
    for words, code, hint in (
        (("get", "one", "none"), 2, "there is no '/work/none'"),
        (("get", "--max-bytes", "3", "one", "x"), 3, "larger than 3 bytes"),
        (("put", "one", "folder", "x"), 2, "tar c DIR"),
        (("put", "one", "missing", "x"), 2, "No such file"),
        (("put", "one", "-", "x", "--mode", "9"), 2, "644 or 755"),
        (("get", "one", "x", "none/there"), 2, "cannot be written"),
    ):
        said = shell(*words)
        assert (said.code, hint in said.err) == (code, True), (words, said)


@pytest.mark.spec("SB-72")
def test_snapshots_and_forks_hold_the_disk_of_their_moment(shell: Shell) -> None:
    shell.did("create", "one")
    shell.did("exec", "one", "sh", "-c", "echo 1 > a; sleep 600 & echo $! > pid")
    shell.did("snapshot", "one", "live")
    shell.did("exec", "one", "sh", "-c", "kill -0 $(cat pid); echo 2 > a")
    shell.did("snapshot", "--stop", "one", "stopped")
    assert shell("fork", "one", "-n", "2", "--json").json["sandboxes"] == ["one-1", "one-2"]
    shell.did("exec", "one-1", "sh", "-c", "echo mine > a")
    shell.did("create", "--from", "live", "two")

    held = {name: shell.did("exec", name, "cat", "a") for name in ("one", "one-1", "one-2", "two")}
    assert held == {"one": b"2\n", "one-1": b"mine\n", "one-2": b"2\n", "two": b"1\n"}
    refused = shell("rm", "--snapshot", "live")
    assert refused.code == 2 and "two" in refused.err
    assert shell("fork", "one", "two").code != 0
    assert shell("fork", "one", "x", "-n", "2").code == 2


@pytest.mark.spec("SB-72")
def test_garbage_is_what_is_old_and_neither_runs_nor_is_rested_upon(shell: Shell) -> None:
    for name in ("old", "busy"):
        shell.did("create", name)
    shell.did("snapshot", "old", "below")
    shell.did("create", "--from", "below", "child")
    shell.did("snapshot", "--stop", "child", "above")
    for name in ("old", "child"):
        end(Kept(shell.state, name))

    assert shell("gc", "--json").json == {"sandboxes": [], "snapshots": [], "dry_run": False}
    would = shell("gc", "--older-than", "0", "--dry-run", "--json").json
    assert (would["sandboxes"], would["snapshots"]) == (["child", "old"], ["above", "below"])
    assert len(shell("ls", "--json").json["sandboxes"]) == 3

    shell.did("gc", "--older-than", "0")

    left = shell("ls", "--json").json
    assert [box["name"] for box in left["sandboxes"]] == ["busy"]
    assert left["snapshots"] == []
    assert shell("gc", "--older-than", "soon").code == 2


@pytest.mark.spec("SB-73")
def test_nothing_leads_out_unless_a_host_was_allowed(shell: Shell) -> None:
    ask = "import os, urllib.request as u; print(u.urlopen('http://127.0.0.2:1/', timeout=20).status)"
    shell.did("create", "shut")
    said = shell("exec", "shut", "python3", "-c", ask)
    assert said.code == 1 and "refused" in said.err
    shell.did("create", "open", "--allow", "files.example")
    proxied = ask.replace("http://127.0.0.2:1/", "http://other.example/")
    said = shell("exec", "open", "python3", "-c", proxied)
    assert "403" in said.err
    assert "EgressDenied" in Kept(shell.state, "open").log.read_text("utf-8")
    assert shell("create", "--transparent", "odd").code == 2


@pytest.mark.spec("SB-70")
def test_what_is_asked_for_in_vain_is_named_and_leaves_nothing(shell: Shell) -> None:
    shell.did("create", "one")
    for words, hint in (
        (("exec", "onee", "true"), "did you mean one?"),
        (("create", "one"), "ironworks sandbox rm one"),
        (("create", "One"), "a-z, 0-9 and -"),
        (("create", "two", "--backend", "loca"), "did you mean local?"),
        (("create", "two", "--memory", "2x"), "512M or 2G"),
        (("create", "two", "--mount", "relative"), "HOST:INSIDE"),
        (("create", "two", "--image", "debian"), "image"),
        (("create", "two", "--from", "none"), "none"),
        (("create", "two", "--env", "none"), "NAME=VALUE"),
        (("exec", "one"), "Missing argument"),
        (("rm", "two"), "ironworks sandbox ls"),
    ):
        said = shell(*words)
        assert said.code != 0 and hint in said.err, (words, said)
    assert [box["name"] for box in shell("ls", "--json").json["sandboxes"]] == ["one"]
    assert {path.stem for path in (shell.state / "keepers").iterdir()} == {"one"}


@pytest.mark.spec("SB-70")
def test_only_its_owner_can_reach_a_keeper(shell: Shell) -> None:
    shell.did("create", "one", "--env", "TOKEN=sk-test-1")
    one = Kept(shell.state, "one")
    for path in (one.folder, one.socket, one.folder / "one.json"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_doctor_of_sandboxes_needs_no_project(shell: Shell) -> None:
    told = shell("doctor", "--json")
    assert told.code == 0 and "create" in told.json["capabilities"]
    assert b"cannot:" in shell.did("doctor")
