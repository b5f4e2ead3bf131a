"""Makes a clean work tree, whatever was there before."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import BinaryIO

from ironworks.sandbox.inside.git import EMAIL, NAME, Git, salvage

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
    dot_git = os.path.join(work, ".git")
    with tempfile.TemporaryDirectory() as folder:
        index = os.path.join(folder, "index")
        with contextlib.suppress(OSError):
            salvage(os.path.join(dot_git, "index"), index)
        remove(dot_git)
        git = Git(dot_git)
        git.init(base, [os.path.join(base_git, "objects")], bare=False)
        git.env["GIT_WORK_TREE"] = work
        with open(os.path.join(dot_git, "config"), "a", encoding="utf-8") as config:
            config.write(CONFIG.format(base_git=base_git))
        if commit != base:
            incoming = os.path.join(folder, "bundle")
            with open(incoming, "wb") as file:
                shutil.copyfileobj(bundle, file)
            git.run("bundle", "unbundle", incoming)
        git.run("update-ref", "refs/remotes/origin/base", base)
        git.run("update-ref", "refs/heads/work", commit)
        if os.path.exists(index):
            shutil.copyfile(index, os.path.join(dot_git, "index"))
        if git.call("reset", "--quiet", "--hard", commit, cwd=work)[0] != 0:
            remove(os.path.join(dot_git, "index"))
            git.run("reset", "--quiet", "--hard", commit, cwd=work)
        git.run("clean", "-ffdq", cwd=work)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
