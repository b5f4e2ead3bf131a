"""What a run has left behind on this machine."""

import os
import time
from pathlib import Path


def processes(mark: str) -> list[str]:
    """Command lines of all processes, but our own, that mention `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


def gone(mark: str, *, within_s: float = 20.0) -> list[str]:
    """The processes that mention `mark` after at most `within_s` seconds: empty as soon as there are none."""
    deadline = time.monotonic() + within_s
    while (found := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def mounts(folder: Path) -> list[str]:
    """Mounts of this namespace below `folder`."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]


def disks(state: Path) -> list[str]:
    """Sandbox disks that are left in a state directory."""
    folder = state / "sandboxes" / "disks"
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
