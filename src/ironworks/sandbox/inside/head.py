"""An agent's repository, read as plain files: git itself could be made to run something."""

from __future__ import annotations

import os

from ironworks.sandbox.inside.git import read_file


def find_git_dir(work: str) -> tuple[str, str]:
    """Its git directory and where its refs and objects are."""
    git_dir = os.path.join(work, ".git")
    if os.path.isfile(git_dir):
        named = os.fsdecode(read_file(git_dir, 8192)).strip()
        git_dir = os.path.join(work, named[len("gitdir:") :].strip())
    common = git_dir
    if os.path.isfile(os.path.join(git_dir, "commondir")):
        common = os.path.join(
            git_dir, os.fsdecode(read_file(os.path.join(git_dir, "commondir"), 8192)).strip()
        )
    return git_dir, common


def read_head(git_dir: str, common: str) -> str:
    """The commit checked out. OSError or ValueError if it cannot be found."""
    head = os.fsdecode(read_file(os.path.join(git_dir, "HEAD"), 8192)).strip()
    for _ in range(5):
        if not head.startswith("ref:"):
            return head
        name = head[len("ref:") :].strip()
        try:
            head = os.fsdecode(read_file(os.path.join(common, name), 8192)).strip()
        except OSError:
            return packed_ref(common, name)
    raise ValueError("HEAD leads nowhere")


def packed_ref(common: str, name: str) -> str:
    for line in os.fsdecode(read_file(os.path.join(common, "packed-refs"))).splitlines():
        oid, _, ref = line.partition(" ")
        if ref == name:
            return oid
    raise ValueError(f"no commit on {name}")
