"""Limits of a sandbox on memory, processes and CPU, where this host lets us set them."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ironworks.core.errors import CapabilityError
from ironworks.core.ports import Capability, SandboxSpec

Controller = Literal["memory", "pids", "cpu"]
CONTROLLERS: tuple[Controller, ...] = ("memory", "pids", "cpu")
PERIOD_US = 100_000
PROBE = "probe-"
LEAF = "ironworks-factory"
MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Hierarchy:
    """A place where we may make groups for some controllers; `version` says how its files are called."""

    folder: Path
    version: Literal[1, 2]
    controllers: frozenset[Controller]


@dataclass(frozen=True)
class Group:
    """One sandbox's groups, one per hierarchy it needs."""

    folders: tuple[Path, ...]

    def add(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid), "ascii")

    def remove(self) -> None:
        """Once no process is in it; what the kernel still holds is swept at the next start."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def memory_peak_bytes(self) -> int:
        """0 where the kernel does not tell."""
        for folder in self.folders:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                with contextlib.suppress(OSError, ValueError):
                    return int((folder / name).read_text("ascii"))
        return 0

    def pids_refused(self) -> int:
        return self._count("pids.events", "max")

    def oom_kills(self) -> int:
        return self._count("memory.events", "oom_kill") or self._count("memory.oom_control", "oom_kill")

    def _count(self, file: str, name: str) -> int:
        """The number after `name` in a file of counters; 0 where the kernel does not tell."""
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError, KeyError):
                pairs = (line.split() for line in (folder / file).read_text("ascii").splitlines())
                return int({pair[0]: pair[1] for pair in pairs}[name])
        return 0


class Cgroups:
    """The groups of one backend. `tag` tells them from those of other backends on the host."""

    def __init__(self, tag: str, in_use: Callable[[str], bool] = lambda _: False) -> None:
        """`in_use` says whether somebody, in this process or another, has the sandbox of that name."""
        self._tag = tag
        self._in_use = in_use
        self._hierarchies = first_of_each(
            place for place in places() if writable(place, f"{tag}-{PROBE}{os.getpid()}")
        )
        self._sweep()

    def capabilities(self) -> frozenset[Capability]:
        found = frozenset().union(*(place.controllers for place in self._hierarchies))
        names: dict[Controller, Capability] = {
            "memory": "memory_limit",
            "pids": "pids_limit",
            "cpu": "cpu_limit",
        }
        return frozenset(names[controller] for controller in found)

    def group(self, spec: SandboxSpec) -> Group:
        """A group with the limits asked for; CapabilityError when one cannot be held here."""
        wanted = wishes(spec)
        for controller in wanted:
            if not any(controller in place.controllers for place in self._hierarchies):
                raise CapabilityError(
                    f"this host does not let us limit a sandbox's {controller}",
                    hint="remove that limit, or run where control groups are delegated to you",
                )
        folders: list[Path] = []
        for place in self._hierarchies:
            chosen = {controller: wanted[controller] for controller in place.controllers & wanted.keys()}
            if chosen:
                folder = place.folder / f"{self._tag}-{spec.name}"
                folder.mkdir(exist_ok=True)
                folders.append(folder)
                for controller, value in chosen.items():
                    limit(folder, place.version, controller, value)
        return Group(tuple(folders))

    def _sweep(self) -> None:
        """Remove the empty groups that a killed process left; one in use may just not be filled yet."""
        for place in self._hierarchies:
            for folder in place.folder.glob(f"{self._tag}-*"):
                name = folder.name.removeprefix(f"{self._tag}-")
                probing = name.startswith(PROBE) and Path("/proc", name.removeprefix(PROBE)).exists()
                if probing or self._in_use(name):
                    continue
                with contextlib.suppress(OSError):
                    folder.rmdir()


def tag_of(root: Path) -> str:
    """How the groups of the backend on this state folder are called."""
    return "ironworks-" + hashlib.sha256(os.fsencode(root)).hexdigest()[:12]


def first_of_each(places: Iterable[Hierarchy]) -> list[Hierarchy]:
    """No controller twice: the first place that has one holds its limit."""
    chosen: list[Hierarchy] = []
    for place in places:
        taken = frozenset[Controller]().union(*(other.controllers for other in chosen))
        if left := place.controllers - taken:
            chosen.append(replace(place, controllers=left))
    return chosen


def wishes(spec: SandboxSpec) -> dict[Controller, float]:
    wanted: dict[Controller, float | None] = {
        "memory": spec.memory_bytes,
        "pids": spec.pids,
        "cpu": spec.cpus,
    }
    return {controller: value for controller, value in wanted.items() if value is not None}


def limit(folder: Path, version: Literal[1, 2], controller: Controller, value: float) -> None:
    quota = str(int(value * PERIOD_US))
    files: dict[tuple[int, Controller], dict[str, str]] = {
        (1, "memory"): {"memory.limit_in_bytes": str(int(value))},
        (2, "memory"): {"memory.max": str(int(value)), "memory.swap.max": "0"},
        (1, "pids"): {"pids.max": str(int(value))},
        (2, "pids"): {"pids.max": str(int(value))},
        (1, "cpu"): {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota},
        (2, "cpu"): {"cpu.max": f"{quota} {PERIOD_US}"},
    }
    for name, text in files[version, controller].items():
        # A kernel without swap accounting has no such file, and nothing to limit.
        if "swap" not in name or (folder / name).exists():
            (folder / name).write_text(text, "ascii")


def places() -> list[Hierarchy]:
    """Where this process stands in each mounted hierarchy; none where the host has none."""
    found = []
    for point, folder, controllers in stands(OWN):
        if controllers is None:
            home = folder.parent if folder.name == LEAF else folder
            # Only root may make groups at the top, where every system hands its controllers down.
            found += [Hierarchy(place, 2, offered(place)) for place in (home, point)]
        else:
            found.append(Hierarchy(folder, 1, controllers))
    useful = [place for place in found if place.controllers and ".." not in place.folder.parts]
    return [place for place in useful if os.access(place.folder, os.W_OK)]


def groups_of(pid: int) -> Group:
    """The groups in which a process stands, made by somebody else, to be looked at."""
    found = stands(Path(f"/proc/{pid}/cgroup"))
    return Group(tuple(folder for _, folder, controllers in found if controllers is None or controllers))


def stands(own: Path) -> list[tuple[Path, Path, frozenset[Controller] | None]]:
    """For each hierarchy its mount point, the folder of the process whose file `own` is, and what it controls
    in version 1, None in version 2."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text("utf-8", "replace").splitlines()]
        groups = [line.split(":", 2) for line in own.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return []
    found: list[tuple[Path, Path, frozenset[Controller] | None]] = []
    for mount in mounts:
        root, point, kind = mount[3], Path(mount[4]), mount[mount.index("-") + 1]
        for number, names, path in groups:
            folder = point / os.path.relpath(path, root)
            if kind == "cgroup2" and number == "0":
                found.append((point, folder, None))
            elif kind == "cgroup" and names and set(names.split(",")) <= set(mount[-1].split(",")):
                found.append((point, folder, known(names.split(","))))
    return found


def offered(folder: Path) -> frozenset[Controller]:
    """What version 2 hands down to groups made here, after we have asked it to hand down what it has."""
    try:
        missing = listed(folder, "cgroup.controllers") - listed(folder, "cgroup.subtree_control")
        if missing:
            hand_down(folder, " ".join(f"+{controller}" for controller in sorted(missing)))
        return listed(folder, "cgroup.subtree_control")
    except OSError:
        return frozenset()


def listed(folder: Path, name: str) -> frozenset[Controller]:
    return known((folder / name).read_text("ascii").split())


def hand_down(folder: Path, controllers: str) -> None:
    """A group that holds processes hands nothing down: where all of them are ours they step aside."""
    control = folder / "cgroup.subtree_control"
    try:
        control.write_text(controllers, "ascii")
    except OSError as error:
        pids = {int(word) for word in (folder / "cgroup.procs").read_text("ascii").split()}
        if error.errno != errno.EBUSY or not all(ours(pid) for pid in pids):
            return
        leaf = folder / LEAF
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(str(pid), "ascii")
        with contextlib.suppress(OSError):
            control.write_text(controllers, "ascii")


def ours(pid: int) -> bool:
    """Whether that is this process or one of its descendants."""
    while pid > 1 and pid != os.getpid():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            return True  # it is gone
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == os.getpid()


def known(names: list[str]) -> frozenset[Controller]:
    return frozenset(controller for controller in CONTROLLERS if controller in names)


def writable(place: Hierarchy, probe: str) -> bool:
    """Whether a group can be made here and limited: found out by doing it."""
    folder = place.folder / probe
    try:
        folder.mkdir(exist_ok=True)
        for controller in place.controllers:
            limit(folder, place.version, controller, 1 << 30 if controller == "memory" else 16)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return True
