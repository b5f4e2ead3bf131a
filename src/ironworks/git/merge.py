"""Reads what `git merge-tree --write-tree -z --messages` says about a merge."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ironworks.git.tree import GITLINK, SYMLINK, ConflictKind, TreeEntry, decode

LOADABLE_BYTES = 16 * 1024 * 1024
"""A conflicted file larger than this is not loaded: no agent could merge it."""
BASE, OURS, THEIRS = 1, 2, 3
CONTENT = "CONFLICT (contents)"
BINARY = "CONFLICT (binary)"
MODIFY_DELETE = "CONFLICT (modify/delete)"


@dataclass(frozen=True, slots=True)
class RawMerge:
    """The merged tree; per conflicted path its versions by stage and the types of conflict reported."""

    tree: str
    stages: Mapping[str, Mapping[int, TreeEntry]]
    types: Mapping[str, frozenset[str]]

    def kind(self, path: str) -> ConflictKind:
        stages, types = self.stages.get(path, {}), self.types.get(path, frozenset())
        if any(entry.mode in {SYMLINK, GITLINK} for entry in stages.values()):
            return "other"
        if types == {CONTENT}:
            return "content" if BASE in stages else "add/add"
        if types == {MODIFY_DELETE}:
            return "modify/delete"
        return "binary" if BINARY in types else "other"


def parse_merge(output: bytes) -> RawMerge:
    """Three parts: the tree; `mode oid stage TAB path` until an empty field; messages and their paths."""
    fields = output.split(b"\0")
    stages: dict[str, dict[int, TreeEntry]] = defaultdict(dict)
    at = 1
    while at < len(fields) and fields[at]:
        facts, _, path = fields[at].partition(b"\t")
        mode, oid, stage = facts.decode("ascii").split()
        stages[decode(path)][int(stage)] = TreeEntry(mode, oid)
        at += 1
    types: dict[str, set[str]] = defaultdict(set)
    at += 1
    while at < len(fields) and fields[at]:
        count = int(fields[at])
        paths = fields[at + 1 : at + 1 + count]
        kind = fields[at + 1 + count].decode("utf-8", "replace")
        if kind.startswith("CONFLICT"):
            for path in paths:
                types[decode(path)].add(kind)
        at += count + 3
    frozen = {path: frozenset(kinds) for path, kinds in types.items()}
    return RawMerge(fields[0].decode("ascii"), stages, frozen)
