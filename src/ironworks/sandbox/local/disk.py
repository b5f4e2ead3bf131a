"""What of local sandboxes stays on the host's file system: disks, and the snapshots on which they rest."""

import contextlib
import fcntl
import json
import os
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

from ironworks.core.errors import BusyError, MissingError, RefusedError, SandboxError
from ironworks.core.ports import SandboxInfo, SnapshotInfo
from ironworks.sandbox.local import tree
from ironworks.sandbox.local.layer import copy_layer, layer_bytes, merge_layers, mountable

NAME = re.compile(r"[a-z0-9-]{1,100}")
AREAS: tuple[tuple[str, str], ...] = (("work", "/work"), ("home", "/home/agent"))
"""Folder on the host, and where it is inside."""
LOCK_TIMEOUT_S = 20.0
FREE_BYTES = 512 << 20
FREE_FILES = 10_000


class Disk:
    """`disks/<name>/`: per area an overlay's upper and work folder, plus which snapshot lies below."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._lock: int | None = None

    def upper(self, area: str) -> Path:
        return self.path / area / "upper"

    def scratch(self, area: str) -> Path:
        return self.path / area / "scratch"

    def lock(self) -> None:
        """Own the disk; whoever still runs on it is ended first. BusyError when that one does not end."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_s = time.monotonic() + LOCK_TIMEOUT_S
        while not try_lock(fd):
            end_process(os.pread(fd, 200, 0))
            if time.monotonic() > deadline_s:
                os.close(fd)
                raise BusyError(f"the disk of sandbox {self.name!r} is in use and its user does not end")
            time.sleep(0.01)
        self._lock = fd

    @property
    def held(self) -> int:
        """The lock's descriptor. It is locked until every copy of it is closed; the sandbox gets one."""
        assert self._lock is not None
        return self._lock

    def record(self, pid: int) -> None:
        """Note who runs on it, for whoever finds it locked."""
        os.ftruncate(self.held, 0)
        os.pwrite(self.held, f"{pid} {start_time(pid)}".encode(), 0)

    def in_use(self) -> bool:
        """Whether somebody holds it now; looking takes no lock that lasts."""
        with contextlib.suppress(FileNotFoundError), (self.path / "lock").open("rb") as file:
            return not try_lock(file.fileno())
        return False

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def size_bytes(self) -> int:
        return sum(layer_bytes(self.upper(area)) for area, _ in AREAS)


class DiskStore:
    """All disks and snapshots under one root. Blocking; each name is used by one caller at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._making: set[Path] = set()
        root.mkdir(parents=True, exist_ok=True)
        # A sandbox of root may leave a set-user-id file on its disk: no other user of the host may get at it.
        root.chmod(0o700)
        for folder in ("disks", "snapshots", "trash", "empty"):
            (root / folder).mkdir(exist_ok=True)

    def disk(self, name: str) -> Disk:
        return Disk(name, self.root / "disks" / checked(name))

    def in_use(self, name: str) -> bool:
        """Whether somebody holds the disk of that name, if there is one."""
        return NAME.fullmatch(name) is not None and self.disk(name).in_use()

    def has_disk(self, name: str) -> bool:
        return read_meta(self.disk(name).path) is not None

    def open(self, name: str, snapshot: str | None) -> Disk:
        """The disk of that name, locked; made from `snapshot` unless it is there already."""
        disk = self.disk(name)
        if not self.has_disk(name):
            self.chain(snapshot)
            self._discard(disk.path)
            for area, _ in AREAS:
                make_open(disk.upper(area))
                disk.scratch(area).mkdir()
            write_meta(disk.path, {"snapshot": snapshot})
        disk.lock()
        self._finish_freezing(disk)
        for area, _ in AREAS:
            # A command may have closed the folder itself; whoever continues on the disk must get in.
            tree.make_movable(disk.upper(area))
        return disk

    def need_room(self) -> None:
        """A file system that runs full takes everything on it along, this program's own records first."""
        free_bytes, free_files = free_space(self.root)
        if free_bytes < FREE_BYTES or free_files < FREE_FILES:
            left = f"{free_bytes >> 20} MiB and {free_files} files are left"
            wanted = f"{FREE_BYTES >> 20} MiB and {FREE_FILES} files"
            raise SandboxError(
                f"{left} on the file system of {self.root}",
                hint=f"make room for {wanted}, or name another state folder",
            )

    def layers(self, disk: Disk, area: str) -> list[Path]:
        """What lies below a disk, lowest first; never empty, and never more than one mount can name.

        A chain of snapshots that gets too long is merged into one layer beside its upper end, once for all.
        """
        top = (read_meta(disk.path) or {}).get("snapshot")
        while True:
            folders = self._folders(top)
            layers = [self.root / "empty", *(folder / area for folder in folders)]
            if mountable([disk.upper(area), disk.scratch(area), *layers]):
                return layers
            self._merge(folders)

    def _folders(self, snapshot: str | None) -> list[Path]:
        """Where the layers of a chain are, lowest first: from the last one that holds all below it."""
        folders: list[Path] = []
        for name in reversed(self.chain(snapshot)):
            merged = self.snapshot_path(name) / "merged"
            if merged.exists():
                return [merged, *folders[::-1]]
            folders.append(self.snapshot_path(name))
        return folders[::-1]

    def _merge(self, folders: list[Path]) -> None:
        """Put as many of the lower layers together as one mount can show."""
        count = next((n for n in range(len(folders), 1, -1) if self._all_mountable(folders[:n])), 0)
        if count == 0:
            raise RefusedError("the path of the state folder is too long for overlays")
        target = folders[count - 1] / "merged"
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if target.exists():
                return
            partial = target.with_name("merging")
            self._discard(partial)
            partial.mkdir()
            for area, _ in AREAS:
                merge_layers([folder / area for folder in folders[:count]], partial / area)
            partial.rename(target)

    def _all_mountable(self, folders: list[Path]) -> bool:
        return all(mountable(folder / area for folder in folders) for area, _ in AREAS)

    def chain(self, snapshot: str | None) -> list[str]:
        """A snapshot and all it rests on, lowest first."""
        names: list[str] = []
        while snapshot is not None:
            meta = read_meta(self.snapshot_path(snapshot))
            if meta is None:
                raise MissingError(f"there is no snapshot {snapshot!r}")
            if snapshot in names:
                raise RefusedError(f"snapshot {snapshot!r} rests on itself")
            names.append(snapshot)
            snapshot = meta.get("snapshot")
        return names[::-1]

    def snapshot_path(self, name: str) -> Path:
        return self.root / "snapshots" / checked(name)

    def has_snapshot(self, name: str) -> bool:
        return read_meta(self.snapshot_path(name)) is not None

    def freeze(self, disk_name: str, name: str) -> None:
        """Turn a resting disk's layer into a snapshot, on which the disk then rests; an existing one wins."""
        if self.has_snapshot(name):
            return
        if not self.has_disk(disk_name):
            raise MissingError(f"there is no disk {disk_name!r}")
        disk = self.open(disk_name, None)
        try:
            if not self.has_snapshot(name):
                self._discard(self.snapshot_path(name))
                write_meta(disk.path, {**(read_meta(disk.path) or {}), "freezing": name})
                self._finish_freezing(disk)
        finally:
            disk.unlock()

    def disks(self) -> list[SandboxInfo]:
        return [self._disk_info(name) for name in self.disk_names() if self.has_disk(name)]

    def _disk_info(self, name: str) -> SandboxInfo:
        disk = self.disk(name)
        return SandboxInfo(
            name=name,
            snapshot=(read_meta(disk.path) or {}).get("snapshot"),
            running=disk.in_use(),
            disk_bytes=disk.size_bytes(),
            created_at=made_at(disk.path),
        )

    def snapshots(self) -> list[SnapshotInfo]:
        names = sorted(path.name for path in (self.root / "snapshots").iterdir())
        return [self._snapshot_info(name) for name in names if self.has_snapshot(name)]

    def _snapshot_info(self, name: str) -> SnapshotInfo:
        path = self.snapshot_path(name)
        return SnapshotInfo(
            name=name,
            below=(read_meta(path) or {}).get("snapshot"),
            disk_bytes=sum(layer_bytes(path / area) for area, _ in AREAS),
            created_at=made_at(path),
        )

    def remove_snapshot(self, name: str) -> None:
        path = self.snapshot_path(name)
        folders = [*(self.root / "disks").iterdir(), *(self.root / "snapshots").iterdir()]
        users = sorted(folder.name for folder in folders if (read_meta(folder) or {}).get("snapshot") == name)
        if users:
            raise BusyError(f"snapshot {name!r} is in use: {', '.join(users[:5])} rests on it")
        self._discard(path)

    def copy(self, disk_name: str, name: str) -> None:
        """Make what is on a disk now a snapshot as well, while nothing writes there; an existing one wins."""
        if self.has_snapshot(name):
            return
        disk, target = self.disk(disk_name), self.snapshot_path(name)
        # Made out of sight: what is half done when this process is killed goes with the trash.
        draft = self._grave(name)
        self._making.add(draft)
        draft.mkdir()
        for area, _ in AREAS:
            copy_layer(disk.upper(area), draft / area)
        write_meta(draft, {"snapshot": (read_meta(disk.path) or {}).get("snapshot")})
        self._discard(target)
        draft.rename(target)
        self._making.discard(draft)

    def remove(self, name: str) -> None:
        disk = self.disk(name)
        if disk.path.exists():
            disk.lock()
            self._discard(disk.path)
            disk.unlock()

    def disk_names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "disks").iterdir())

    def empty_trash(self) -> None:
        """What a process that died had begun to remove, or to make."""
        for path in (self.root / "trash").iterdir():
            if path not in self._making and not of_another(path.name):
                tree.remove_tree(path)

    def _finish_freezing(self, disk: Disk) -> None:
        """Every step may have been done already, by a process that then died."""
        meta = read_meta(disk.path) or {}
        if not (name := meta.get("freezing")):
            return
        target = self.snapshot_path(name)
        target.mkdir(exist_ok=True)
        if not self.has_snapshot(name):
            for area, _ in AREAS:
                if not (target / area).exists():
                    tree.make_movable(disk.upper(area))
                    disk.upper(area).rename(target / area)
            write_meta(target, {"snapshot": meta.get("snapshot")})
        for area, _ in AREAS:
            make_open(disk.upper(area))
        write_meta(disk.path, {"snapshot": name})

    def _discard(self, path: Path) -> None:
        """Remove a tree; out of the way at once, so that half a tree never bears the name."""
        if path.exists():
            grave = self._grave(path.name)
            path.rename(grave)
            tree.remove_tree(grave)

    def _grave(self, name: str) -> Path:
        return self.root / "trash" / f"{name}-{os.getpid()}-{time.monotonic_ns()}"


def of_another(grave: str) -> bool:
    """Whether a living process other than this one works on what has that name in the trash."""
    found = re.fullmatch(r".*-([0-9]+)-[0-9]+", grave)
    return found is not None and int(found[1]) != os.getpid() and Path(f"/proc/{found[1]}").exists()


def make_open(folder: Path) -> None:
    """Make a folder as a sandbox shall see it, whatever the host's umask is; nothing when it is there."""
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(0o755)


def free_space(path: Path) -> tuple[int, float]:
    """Bytes and files that are left to us on a file system; infinitely many files where it does not count."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else float("inf")


def made_at(folder: Path) -> datetime:
    """When its description was last written: a disk that was made, a snapshot that was frozen."""
    return datetime.fromtimestamp((folder / "meta.json").stat().st_mtime, UTC)


def checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise RefusedError(f"not a name of 1 to 100 of a-z, 0-9 and '-': {name[:120]!r}")
    return name


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end_process(record: bytes) -> None:
    """Kill the recorded process if it is still the one that was recorded."""
    words = record.split()
    if len(words) != 2 or not words[0].isdigit():
        return
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(int(words[0]))
        try:
            if start_time(int(words[0])).encode() == words[1]:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def start_time(pid: int) -> str:
    """When a process began, in the kernel's ticks; with the pid it names one process until the next boot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except OSError:
        return "gone"


def write_meta(folder: Path, meta: dict[str, str | None]) -> None:
    partial = folder / "meta.partial"
    partial.write_text(json.dumps(meta), "ascii")
    partial.rename(folder / "meta.json")


def read_meta(folder: Path) -> dict[str, str | None] | None:
    """None where there is none, or where the machine stopped before it was written."""
    try:
        meta: dict[str, str | None] = json.loads((folder / "meta.json").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return meta
