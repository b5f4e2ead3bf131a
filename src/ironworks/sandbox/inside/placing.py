"""Makes a clean work tree, whatever was there before, and settles one that was just prepared."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
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
# Folders that only tools fill; so is one with more than MANY files, or with a repository, nobody tracks.
GENERATED = ("*.egg-info", "*.dist-info", ".eggs", "node_modules", "__pycache__", ".venv", "venv", ".tox")
MANY = 100


def place(*, work: str, base_git: str, base: str, commit: str, bundle: BinaryIO, built: list[str]) -> None:
    """Make `work` a checkout of `commit` on branch `work`, whatever was there; ignored files stay, and so
    does what matches `built`.

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
            git = make(work, base_git, base, commit, incoming, index, built)
        except (Failed, OSError):
            unlock(work)
            git = make(work, base_git, base, commit, incoming, None, built)
        git.run("clean", "-ffdq", cwd=work)


def settle(*, work: str, base_git: str, base: str) -> dict[str, object]:
    """Make a tree that was placed at `base`, and then prepared, one that git calls clean.

    What is tracked goes back to `base`. What was added and is not ignored stays: `built` in the answer are
    the patterns for it, in the form of a `.gitignore`.
    """
    git = make(work, base_git, base, base, "", None, [])
    args = ("ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z")
    found = git.run(*args, cwd=work).split(b"\0")[:-1]
    built = [pattern(path) for entry in found for path in unfold(work, entry)]
    make(work, base_git, base, base, "", None, built)
    return {"built": built}


def unfold(work: str, entry: bytes) -> list[bytes]:
    """A file, or a folder that ends in a slash, or instead of such a folder the files in it, if each may
    matter by itself: what a worker adds beside them is work."""
    if not entry.endswith(b"/"):
        return [entry]
    name = os.fsdecode(os.path.basename(entry[:-1]))
    if any(fnmatch.fnmatchcase(name, generated) for generated in GENERATED):
        return [entry]
    top = os.fsencode(work)
    files: list[bytes] = []
    for folder, folders, names in os.walk(os.path.join(top, entry)):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        files += [os.path.relpath(os.path.join(folder, name), top) for name in (*names, *links)]
        if len(files) > MANY or b".git" in (*folders, *names):
            return [entry]
    return files


def pattern(path: bytes) -> str:
    """The line of a `.gitignore` at the top that matches this; what a line cannot say is any one byte."""
    text = re.sub(rb"([\\*?\[ ])", rb"\\\1", path).replace(b"\n", b"?").decode("utf-8", "surrogateescape")
    return "/" + re.sub("[\udc80-\udcff]", "?", text)


def make(
    work: str, base_git: str, base: str, commit: str, bundle: str, index: str | None, built: list[str]
) -> Git:
    dot_git = os.path.join(work, ".git")
    remove(dot_git)
    git = Git(dot_git)
    git.init(base, [os.path.join(base_git, "objects")], bare=False, built=built)
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
    return git


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
