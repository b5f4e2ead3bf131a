"""What trees, changes and merges are made of, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ironworks.core.errors import RefusedError

FILE = "100644"
EXECUTABLE = "100755"
SYMLINK = "120000"
GITLINK = "160000"
BLOB_MODES: frozenset[str] = frozenset({FILE, EXECUTABLE, SYMLINK})

ConflictKind = Literal["content", "add/add", "modify/delete", "binary", "other"]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file, symlink or gitlink that is already in the depot. `size` in bytes, None = not known."""

    mode: str
    oid: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Blob:
    """A file to be written."""

    data: bytes
    mode: str = FILE


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs. `status`: A added, D deleted, M modified, T type; mode 000000 = absent."""

    path: str
    status: str
    old_mode: str
    new_mode: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """One path git could not merge, with its three versions; None = absent there, or not loaded."""

    path: str
    kind: ConflictKind
    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


@dataclass(frozen=True, slots=True)
class Merge:
    """A merged tree. Unless `clean`, it holds conflict markers at the paths of `conflicts`."""

    tree: str
    clean: bool
    conflicts: tuple[Conflict, ...]


def decode(path: bytes) -> str:
    """A path as text; bytes that are not UTF-8 survive as surrogates."""
    return path.decode("utf-8", "surrogateescape")


def encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def parse_files(listing: bytes) -> dict[str, TreeEntry]:
    """The output of `ls-tree -r -z -l`."""
    entries: dict[str, TreeEntry] = {}
    for record in listing.split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        mode, _, oid, size = facts.decode("ascii").split()
        entries[decode(path)] = TreeEntry(mode, oid, int(size) if size.isdigit() else None)
    return entries


def parse_changes(raw: bytes) -> list[Change]:
    """The output of `diff-tree -r -z --raw --no-renames`."""
    fields = raw.split(b"\0")[:-1]
    changes = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, _, _, status = facts.decode("ascii").lstrip(":").split()
        changes.append(Change(decode(path), status, old_mode, new_mode))
    return changes


def index_lines(entries: Mapping[str, TreeEntry | None], base: str | None) -> bytes:
    """Input for `update-index -z --index-info`; None takes a path out of `base`.

    Deletions first: a file may take the place of a folder that goes.
    """
    lines = []
    for path, entry in sorted(entries.items(), key=lambda item: item[1] is not None):
        if "\0" in path or not path:
            raise RefusedError(f"{path!r} is no path")
        if entry is not None:
            lines.append(f"{entry.mode} {entry.oid}\t".encode("ascii") + encode(path) + b"\0")
        elif base is not None:
            lines.append(f"0 {'0' * len(base)}\t".encode("ascii") + encode(path) + b"\0")
    return b"".join(lines)
