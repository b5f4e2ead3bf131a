"""The tree in which both sides are: what git merged and the proof accepts, and the files that are left."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from ironworks.core.models import Finding
from ironworks.git.depot import Depot
from ironworks.git.tree import FILE, Blob, Conflict
from ironworks.merge.proof import proof
from ironworks.verify.path import shown

READ_BYTES = 5_000_000
ALIKE = 0.5
"""Share of equal lines from which a file is taken for another one that moved."""


@dataclass(frozen=True, slots=True)
class ConflictUnit:
    """One text file that git could not merge, or merged in a way that is not proved."""

    path: str
    base: str | None
    """None where both sides added it."""
    ours: str
    theirs: str
    reason: str


@dataclass(frozen=True, slots=True)
class Union:
    """`tree` is right but for the files of `units`; `hopeless` says what no text can resolve."""

    tree: str
    proved: int
    """Files that both sides changed, each in its way, and git merged as it must be."""
    units: tuple[ConflictUnit, ...]
    hopeless: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """A path that both sides changed. Contents are None where absent."""

    path: str
    base: bytes | None
    ours: bytes | None
    theirs: bytes | None
    merged: bytes | None

    def proof(self) -> list[Finding]:
        return proof(self.path, self.base, self.ours, self.theirs, self.merged)


def unite(depot: Depot, ours: str, theirs: str) -> Union:
    """Merge two commits as far as it can be proved. RefusedError for a file too large to look at."""
    merge = depot.merge(ours, theirs)
    proved = 0
    units: list[ConflictUnit] = []
    hopeless: list[str] = []
    for conflict in merge.conflicts:
        unit = _unit(conflict)
        if unit:
            units.append(unit)
        else:
            hopeless.append(f"{shown(conflict.path)}: {conflict.kind}")
    conflicted = {conflict.path for conflict in merge.conflicts}
    for shared in _shared(depot, ours, theirs, merge.tree, conflicted):
        wrong = [finding.message for finding in shared.proof() if finding.fatal]
        left = _left(shared, "git merged this without a conflict, but " + "; ".join(wrong))
        if not wrong:
            proved += 1
        elif left:
            units.append(left)
        else:
            hopeless += wrong
    return Union(merge.tree, proved, tuple(units), tuple(hopeless))


def _unit(conflict: Conflict) -> ConflictUnit | None:
    if conflict.kind not in {"content", "add/add"}:
        return None
    sides = Shared(conflict.path, conflict.base, conflict.ours, conflict.theirs, None)
    return _left(sides, f"git could not merge this file ({conflict.kind})")


def _left(shared: Shared, reason: str) -> ConflictUnit | None:
    """What is to be resolved by text; None where a side is absent, or no text."""
    try:
        base = None if shared.base is None else shared.base.decode()
        shared.path.encode()
        if shared.ours is None or shared.theirs is None:
            return None
        return ConflictUnit(shared.path, base, shared.ours.decode(), shared.theirs.decode(), reason)
    except UnicodeError:
        return None


def _shared(depot: Depot, ours: str, theirs: str, tree: str, conflicted: set[str]) -> Iterator[Shared]:
    """Every path that both sides changed differently and git merged; a file one side moved is followed."""
    base = depot.merge_base(ours, theirs)
    if base is None:
        return
    mine = {change.path: change for change in depot.changes(base, ours)}
    other = {change.path: change for change in depot.changes(base, theirs)}
    for path in sorted(mine.keys() & other.keys() - conflicted):
        versions = (_read(depot, commit, path) for commit in (base, ours, theirs, tree))
        shared = Shared(path, *versions)
        if shared.ours == shared.theirs:
            continue
        for side, changes in ((ours, mine), (theirs, other)):
            if shared.merged is None and changes[path].status == "D":
                added = [change.path for change in changes.values() if change.status == "A"]
                shared = _followed(depot, shared, side, tree, added)
        yield shared


def _followed(depot: Depot, shared: Shared, mover: str, tree: str, added: list[str]) -> Shared:
    """The same file where `mover` put it; as it is when it was put nowhere."""
    for path in added:
        moved = _read(depot, mover, path)
        if moved is not None and _alike(shared.base, moved):
            merged = _read(depot, tree, path)
            missing = "ours" if shared.ours is None else "theirs"
            return replace(shared, path=path, merged=merged, **{missing: moved})
    return shared


def _alike(old: bytes | None, new: bytes) -> bool:
    lines = (old or b"").splitlines(), new.splitlines()
    return SequenceMatcher(None, *lines).ratio() >= ALIKE


def _read(depot: Depot, commit: str, path: str) -> bytes | None:
    return depot.read(commit, path, max_bytes=READ_BYTES)


def with_resolutions(depot: Depot, union: Union, resolved: dict[str, str]) -> str:
    """The tree with these files' texts put in; their modes stay."""
    if not resolved:
        return union.tree
    files = depot.files(union.tree)
    modes = {path: files[path].mode if path in files else FILE for path in resolved}
    blobs = {path: Blob(text.encode(), modes[path]) for path, text in resolved.items()}
    return depot.write_tree(union.tree, blobs)
