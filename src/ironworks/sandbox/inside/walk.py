"""What a work tree consists of, found and hashed without git."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Callable

from ironworks.sandbox.inside.git import EXECUTABLE, FILE, FOLDER, SYMLINK, Entry

# What a file system may take for `.git`, as git itself judges it.
IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
GIT_NAMES = re.compile(rb"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE | re.DOTALL)
Tell = Callable[[str, bytes], None]
Ignored = Callable[["list[bytes]"], "set[bytes]"]


class Walk:
    """Finds what belongs to the work tree: everything on disk that is tracked or not ignored."""

    def __init__(self, work: str, oid_length: int, tell: Tell, ignored: Ignored) -> None:
        """`ignored` picks out of paths those that git ignores; `tell` is given what people should know."""
        self._work = os.fsencode(work)
        self._oid_length = oid_length
        self._tell = tell
        self._ignored = ignored
        self._gitlinks: dict[bytes, Entry] = {}
        self._entries: dict[bytes, Entry] = {}

    def entries(self, tracked: Iterable[bytes], gitlinks: dict[bytes, Entry]) -> dict[bytes, Entry]:
        """By path. A folder at one of `gitlinks` is a submodule; other repositories are just files."""
        self._gitlinks = gitlinks
        level = [b""]
        while level:
            found = [path for folder in level for path in self._names(folder)]
            ignored = self._ignored(found)
            level = [path for path in found if path not in ignored and self._take(path)]
        for path in set(tracked) - self._entries.keys():
            if self._is_there(path):
                self._take(path)
        return self._entries

    def _names(self, folder: bytes) -> Iterator[bytes]:
        disk = self._on_disk(folder)
        try:
            names = os.listdir(readable(disk, 0o700))
        except OSError as error:
            self._tell(f"this folder cannot be read and is not captured: {error.strerror}", folder or b".")
            return
        for name in names:
            path = os.path.join(folder, name)
            if not looks_like_git(name):
                yield path
            elif path != b".git":
                what = "a repository of its own: its files are captured, its history is not"
                self._tell(what if name == b".git" else "git cannot store this name: not captured", path)

    def _take(self, path: bytes) -> bool:
        """Record a file or symlink; True for a folder to be walked."""
        disk = self._on_disk(path)
        try:
            facts = os.lstat(disk)
            if stat.S_ISDIR(facts.st_mode):
                return not self._is_submodule(path, disk)
            if stat.S_ISLNK(facts.st_mode):
                self._entries[path] = Entry(SYMLINK, self._hash_bytes(os.readlink(disk)))
            elif stat.S_ISREG(facts.st_mode):
                mode = EXECUTABLE if facts.st_mode & stat.S_IXUSR else FILE
                self._entries[path] = Entry(mode, self._hash_file(readable(disk, 0o400)))
            else:
                self._tell("neither file, folder nor symbolic link: not captured", path)
        except OSError as error:
            self._tell(f"cannot be read and is not captured: {error.strerror}", path)
        return False

    def _is_submodule(self, path: bytes, disk: bytes) -> bool:
        if path not in self._gitlinks:
            return False
        if set(os.listdir(disk)) - {b".git"} and not os.path.lexists(os.path.join(disk, b".git")):
            self._tell("a submodule at the base, now plain files", path)
            return False
        self._entries[path] = self._gitlinks[path]
        return True

    def _is_there(self, path: bytes) -> bool:
        """Whether a tracked path can be taken: nothing above it is a symlink, a submodule, or like `.git`."""
        parts = path.split(b"/")
        folders = [b"/".join(parts[:count]) for count in range(1, len(parts))]
        disk = self._on_disk
        if any(looks_like_git(part) for part in parts) or any(folder in self._gitlinks for folder in folders):
            return False
        if any(os.path.islink(disk(folder)) or not os.path.isdir(disk(folder)) for folder in folders):
            return False
        is_folder = os.path.isdir(disk(path)) and not os.path.islink(disk(path))
        return os.path.lexists(disk(path)) and (path in self._gitlinks or not is_folder)

    def _on_disk(self, path: bytes) -> bytes:
        return os.path.join(self._work, path)

    def _hash_bytes(self, data: bytes) -> bytes:
        return new_hash(self._oid_length, b"blob", len(data), [data])

    def _hash_file(self, path: bytes) -> bytes:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            return new_hash(self._oid_length, b"blob", size, iter(lambda: file.read(1 << 20), b""))


def readable(path: bytes, mode: int) -> bytes:
    """The same path, which its owner may now read, even if the agent took that away."""
    facts = os.lstat(path)
    if facts.st_mode & mode != mode:
        os.chmod(path, stat.S_IMODE(facts.st_mode) | mode)
    return path


def looks_like_git(name: bytes) -> bool:
    """Whether git refuses this name in a tree, because some file system takes it for `.git`."""
    if any(GIT_NAMES.fullmatch(part) for part in name.split(b"\\")):
        return True
    return IGNORABLE.sub("", name.decode("utf-8", "replace")).lower() == ".git"


def new_hash(oid_length: int, kind: bytes, size: int, chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha1() if oid_length == 40 else hashlib.sha256()
    digest.update(b"%b %d\0" % (kind, size))
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest().encode("ascii")


def tree_id(entries: dict[bytes, Entry], oid_length: int) -> str:
    """The id of the tree that holds `entries`, computed without git, deepest folder first."""
    folders: dict[bytes, dict[bytes, Entry]] = {b"": {}}
    for path, entry in entries.items():
        folder, _, name = path.rpartition(b"/")
        folders.setdefault(folder, {})[name] = entry
        while folder:
            folder = folder.rpartition(b"/")[0]
            folders.setdefault(folder, {})
    for path in sorted(folders, key=lambda path: path.count(b"/") + 1 if path else 0, reverse=True):
        items = sorted(folders[path].items(), key=lambda item: item[0] + b"/" * (item[1].mode == FOLDER))
        body = b"".join(
            b"%b %b\0%b" % (entry.mode, name, bytes.fromhex(entry.oid.decode())) for name, entry in items
        )
        oid = new_hash(oid_length, b"tree", len(body), [body])
        if path:
            folder, _, name = path.rpartition(b"/")
            folders[folder][name] = Entry(FOLDER, oid)
    return oid.decode("ascii")
