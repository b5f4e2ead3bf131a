"""Why this host makes no sandboxes, and the exact fix: found out by making a sandbox's parts one by one."""

import contextlib
import errno
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ironworks.sandbox.docker.address import answering_engine, engine_sockets

STEP_TIMEOUT_S = 20.0
STEPS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
def step(name, failed):
    if failed:
        print(name, ctypes.get_errno())
        sys.exit()
step("user", libc.unshare(0x10000000))
try:
    for path, text in ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"):
        with open(f"/proc/self/{path}", "w") as file: file.write(text)
except OSError as error:
    print("map", error.errno)
    sys.exit()
step("mount", libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 16384 | (1 << 18), None))
step("network", libc.unshare(0x6C000000))
print("all", 0)
"""
USER_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
UNPRIVILEGED = Path("/proc/sys/kernel/unprivileged_userns_clone")
APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
PROFILE = (
    "abi <abi/4.0>,\\ninclude <tunables/global>\\n"
    "profile ironworks {} flags=(unconfined) {{\\n  userns,\\n}}\\n"
)
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
CONTAINER_FIX = (
    "inside a container: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined, or with --privileged"
)


class Failure(NamedTuple):
    """The first step that fails (`user`, `map`, `mount`, `network`; `all` when none does) and its errno."""

    step: str
    number: int


def first_failure() -> Failure:
    """Make a user namespace and what a sandbox needs in it, in a process of its own."""
    command = [sys.executable, "-I", "-S", "-c", STEPS]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=True)
        step, number = done.stdout.split()
        return Failure(step, int(number))
    return Failure("user", 0)


def namespace_fix(failure: Failure, bwrap: str) -> str:
    """What to do where namespaces fail in this way; `bwrap` is the program that must be let."""
    if failure.step == "user" and failure.number == errno.ENOSPC:
        return sysctl("user.max_user_namespaces=15000")
    if failure.step == "user" and failure.number in {errno.ENOSYS, errno.EINVAL}:
        return "use a kernel with user namespaces (CONFIG_USER_NS)"
    if filtered() or any(Path(mark).exists() for mark in CONTAINER_MARKS):
        return CONTAINER_FIX
    if value(UNPRIVILEGED) == "0":
        return sysctl("kernel.unprivileged_userns_clone=1")
    if value(APPARMOR) == "1":
        return apparmor_fix(bwrap)
    if value(USER_NAMESPACES) == "0":
        return sysctl("user.max_user_namespaces=15000")
    return "run as root, or let this user make user namespaces"


def sysctl(setting: str) -> str:
    return (
        f"as root: sysctl -w {setting} (and write it to /etc/sysctl.d/60-ironworks.conf, for the next boot)"
    )


def apparmor_fix(bwrap: str) -> str:
    """Ubuntu 23.10 and newer: a profile for this one program, or the setting for every program."""
    path = "/etc/apparmor.d/ironworks"
    return (
        f"as root: printf '{PROFILE.format(bwrap)}' > {path} && apparmor_parser -r {path} "
        "(or, for every program: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"
    )


def overlay_fix(root: Path, *, in_memory: bool) -> str:
    """`in_memory`: whether an overlay works on a file system in memory, so that this one is at fault."""
    if in_memory:
        kind = file_system(root)
        return f"put the state directory on ext4, xfs or btrfs (--state DIR): {root} is on {kind}"
    return f"use Linux 5.11 or newer, whose users may mount overlays: this is {platform.release()}"


def file_system(path: Path) -> str:
    """What kind of file system the path is on; `another` where the host does not tell."""
    best, kind = "", "another"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
            point, found = line.split()[1:3]
            if path.is_relative_to(point) and len(point) >= len(best):
                best, kind = point, found
    return kind


def filtered() -> bool:
    """Whether somebody else's filter of system calls is around this very process."""
    return "Seccomp:\t2" in value(Path("/proc/self/status"))


def engine_hint() -> str:
    """The way out where a container engine answers; empty where none does."""
    place = answering_engine(engine_sockets())
    return f"; or use the docker backend: an engine answers at {place}" if place else ""


def value(path: Path) -> str:
    """A setting of the kernel; empty where there is none."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
