"""Where a probe runs: the sandbox, which must hold it, and places without a guard, where it must get out.

A probe is a Python program that attempts things by name. It counts only when every attempt that the sandbox
held succeeds in a weak place: a probe that cannot get out anywhere shows nothing.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ironworks.core.ports import Sandbox
from ironworks.sandbox.local.boot import PYTHON, find_bwrap, isolation
from ironworks.sandbox.local.view import system_arguments

TIMEOUT_S = 60
PRELUDE = """
import ctypes, errno, os, platform, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, call, *arguments):
    try: done = call(*arguments)
    except (OSError, subprocess.SubprocessError) as error: done, why = False, repr(error)
    else: why = repr(done)[:100]
    print("held" if done is False else "OUT", name, why.replace("\\n", " "), sep="\\t", flush=True)
def kernel(call, *arguments):
    number = call if isinstance(call, int) else NUMBERS[platform.machine()][call]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
NUMBERS = {
    "x86_64": dict(clone=56, keyctl=250, bpf=321, userfaultfd=323, add_key=248, setns=308, handle=303),
    "aarch64": dict(clone=220, keyctl=219, bpf=280, userfaultfd=282, add_key=217, setns=268, handle=264),
}
"""
Weak = Callable[[str, tuple[str, ...]], str]
"""Runs a program with arguments in a place that lacks a guard, and gives what it printed."""


async def held(sandbox: Sandbox, probe: str, *arguments: str, weak: Weak | tuple[Weak, ...]) -> None:
    """The sandbox holds every attempt of `probe`, and each of them gets out in one of the weak places."""
    argv = [PYTHON, "-I", "-c", PRELUDE + probe, *arguments]
    inside = await sandbox.exec(argv, timeout_s=TIMEOUT_S)
    assert inside.exit_code == 0, inside.text()
    outcome = outcomes(inside.stdout.decode())
    assert outcome, "the probe attempted nothing"
    assert not got_out(outcome), f"got out of the sandbox: {got_out(outcome)}"
    places = weak if isinstance(weak, tuple) else (weak,)
    said = [outcomes(await asyncio.to_thread(place, PRELUDE + probe, arguments)) for place in places]
    proved = set().union(*(got_out(one) for one in said))
    assert proved == set(outcome), f"held in every weak place too: {said}"


def outcomes(text: str) -> dict[str, tuple[str, str]]:
    """What each attempt came to, by its name."""
    rows = (line.split("\t", 2) for line in text.splitlines())
    return {name: (verdict, why) for verdict, name, why in rows}


def got_out(outcome: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: why for name, (verdict, why) in outcome.items() if verdict != "held"}


def outside(probe: str, arguments: tuple[str, ...]) -> str:
    """On the host itself."""
    return run([PYTHON, "-I", "-c", probe, *arguments])


def inherited(probe: str, arguments: tuple[str, ...]) -> str:
    """On the host, with the environment of this process."""
    return run([PYTHON, "-I", "-c", probe, *arguments], env=None)


def nobody(probe: str, arguments: tuple[str, ...]) -> str:
    """On the host itself, as a user of no rights: only root can become one."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return run([*user, PYTHON, "-I", "-c", probe, *arguments])


def private(probe: str, arguments: tuple[str, ...]) -> str:
    """In namespaces of its own, but with every privilege in them, and with a pid 1 like any other process."""
    unshare = shutil.which("unshare") or pytest.skip("needs unshare, to make a place that is weak")
    namespaces = ["--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--uts"]
    # A shell that has something left to do stays pid 1.
    shell = ["sh", "-c", '"$@"; exit $?', "sh", PYTHON, "-I", "-c", probe, *arguments]
    return run([unshare, *namespaces, "--fork", "--mount-proc", *shell])


def unfiltered(probe: str, arguments: tuple[str, ...]) -> str:
    """As a local sandbox, but without the filter of system calls."""
    return run([find_bwrap(), *isolation(), *system_arguments(), "--", PYTHON, "-I", "-c", probe, *arguments])


def showing(folder: Path, inside: str) -> Weak:
    """As a local sandbox, but with a folder of the host instead of layers."""

    def place(probe: str, arguments: tuple[str, ...]) -> str:
        shown = ["--bind", str(folder), inside, "--chdir", inside]
        program = [PYTHON, "-I", "-c", probe, *arguments]
        return run([find_bwrap(), *isolation(), *system_arguments(), *shown, "--", *program])

    return place


def open_to_all(folder: Path) -> None:
    """Let every user of the host get at a folder of a test's."""
    for each in (folder, *list(folder.parents)[:-2]):
        each.chmod(each.stat().st_mode | 0o111)


def run(command: list[str], env: dict[str, str] | None = {}) -> str:  # noqa: B006 -- read only
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, env=env, check=False)
    # A probe may end its own process: what it said before counts.
    if done.returncode and not done.stdout:
        sys.stderr.buffer.write(done.stderr)
    return done.stdout.decode()
