"""Makes a clean work tree, whatever was there before."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import BinaryIO

from ironworks.sandbox.inside.git import EMAIL, NAME, Failed, Git, salvage

CONFIG = f"""[user]
\tname = {NAME}
\temail = {EMAIL}
[gc]
\tauto = 0
[remote "origin"]
\turl = {{base_git}}
\tfetch = +refs/heads/*:refs/remotes/origin/*
"""


def place(*, work: str, base_git: str, base: str, commit: str, bundle: BinaryIO) -> None:
    """Make `work` a checkout of `commit` on branch `work`, whatever was there; ignored files stay.

    `.git` is always made anew: what an agent did to the old one cannot matter. Only the old index is used,
    because it knows which files need not be written again.
    """
    with tempfile.TemporaryDirectory() as folder:
        incoming = os.path.join(folder, "bundle")
        with open(incoming, "wb") as file:
            shutil.copyfileobj(bundle, file)
        index = os.path.join(folder, "index")
        with contextlib.suppress(OSError):
            salvage(os.path.join(work, ".git", "index"), index)
        try:
            make(work, base_git, base, commit, incoming, index)
        except (Failed, OSError):
            unlock(work)
            make(work, base_git, base, commit, incoming, None)


def make(work: str, base_git: str, base: str, commit: str, bundle: str, index: str | None) -> None:
    dot_git = os.path.join(work, ".git")
    remove(dot_git)
    git = Git(dot_git)
    git.init(base, [os.path.join(base_git, "objects")], bare=False)
    git.env["GIT_WORK_TREE"] = work
    with open(os.path.join(dot_git, "config"), "a", encoding="utf-8") as config:
        config.write(CONFIG.format(base_git=base_git))
    if commit != base:
        git.run("bundle", "unbundle", bundle)
    git.run("update-ref", "refs/remotes/origin/base", base)
    git.run("update-ref", "refs/heads/work", commit)
    if index and os.path.exists(index):
        shutil.copyfile(index, os.path.join(dot_git, "index"))
    git.run("reset", "--quiet", "--hard", commit, cwd=work)
    git.run("clean", "-ffdq", cwd=work)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def unlock(folder: str) -> None:
    """Give the owner back every right to every folder below."""
    os.chmod(folder, 0o755)
    for path, folders, _ in os.walk(folder):
        for name in folders:
            inside = os.path.join(path, name)
            if not os.path.islink(inside):
                os.chmod(inside, 0o755)
