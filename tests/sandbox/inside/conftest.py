"""The programs of `inside`, run on folders of this machine: what they do does not depend on the sandbox."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ironworks.git.depot import Depot
from ironworks.sandbox.checkout import Capture, program


def plain_git(*args: str | bytes | Path, cwd: Path, stdin: bytes = b"") -> str:
    """git as an agent would use it."""
    roles = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
    who = {f"GIT_{role}": "x@localhost" for role in roles}
    result = subprocess.run(
        ["git", *args], cwd=cwd, env={**os.environ, **who}, input=stdin, capture_output=True, timeout=60
    )
    if result.returncode:
        raise RuntimeError(f"git {args!r}: {result.stderr.decode('utf-8', 'replace')}")
    return result.stdout.decode("utf-8", "surrogateescape").strip()


class Workplace:
    """`work` as an agent has it, made from the tip of a user's `main`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.home = folder / "home"
        self.user = folder / "user"
        for path in (self.work, self.home, self.user):
            path.mkdir()
        plain_git("init", "--quiet", "--initial-branch=main", cwd=self.user)

    def start(self) -> "Workplace":
        """Commit what is in `user`, and place it in `work`."""
        plain_git("add", "-A", "--force", cwd=self.user)
        plain_git("commit", "--quiet", "--allow-empty", "-m", "base", cwd=self.user)
        self.depot = Depot(self.folder / "depot.git", self.user)
        self.base = self.depot.sync("main")
        self.base_git = self.folder / "base.git"
        self.depot.base_repository(self.base, self.base_git)
        self.place(self.base)
        return self

    def git(self, *args: str | bytes | Path) -> str:
        return plain_git(*args, cwd=self.work)

    def run(self, task: dict[str, object], stdin: bytes = b"") -> tuple[dict[str, Any], bytes]:
        places = {"work": str(self.work), "base_git": str(self.base_git), "base": self.base}
        argv = [sys.executable, "-I", "-c", program(), json.dumps({**task, **places})]
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=100, cwd="/")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stderr.splitlines()[-1]), done.stdout

    def place(self, commit: str) -> None:
        bundle = self.folder / "bundle-in"
        self.depot.bundle(commit, bundle, exclude=[self.base])
        answer, _ = self.run({"verb": "place", "commit": commit, "built": []}, bundle.read_bytes())
        assert answer == {}

    def answer(self, max_bytes: int = 50_000_000) -> tuple[dict[str, Any], bytes]:
        task = {"verb": "capture", "home": str(self.home), "max_bytes": max_bytes}
        return self.run({**task, "built": [], "title": "Fix it"})

    def capture(self) -> Capture:
        answer, bundle = self.answer()
        captured = Capture.model_validate_json(json.dumps(answer))
        if captured.commit != self.base:
            path = self.folder / "bundle-out"
            path.write_bytes(bundle)
            assert self.depot.admit(path, base=self.base, ref="refs/attempts/1") == captured.commit
        assert self.depot.tree_of(captured.commit) == captured.tree
        assert list(self.home.iterdir()) == []
        return captured

    def captured_files(self, captured: Capture) -> dict[str, tuple[str, bytes]]:
        modes = {path: entry.mode for path, entry in self.depot.files(captured.commit).items()}
        return {path: (mode, self.depot.read(captured.commit, path) or b"") for path, mode in modes.items()}

    def disk(self, *without: str) -> dict[str, tuple[str, bytes]]:
        """Mode and content of every file, found with nothing but os.walk."""
        found = {}
        for folder, folders, files in os.walk(self.work):
            folders[:] = [name for name in folders if name != ".git"]
            for name in [*files, *(name for name in folders if Path(folder, name).is_symlink())]:
                path = Path(folder, name)
                if name != ".git":
                    found[str(path.relative_to(self.work))] = mode_and_content(path)
        return {path: facts for path, facts in found.items() if path not in without}


def mode_and_content(path: Path) -> tuple[str, bytes]:
    if path.is_symlink():
        return "120000", os.fsencode(path.readlink())
    return "100755" if path.stat().st_mode & stat.S_IXUSR else "100644", path.read_bytes()


@pytest.fixture
def empty_place(tmp_path: Path) -> Workplace:
    """Not started: put the base's files into `user` first."""
    return Workplace(tmp_path)


@pytest.fixture
def place(empty_place: Workplace) -> Workplace:
    """Started, on a base with some of everything."""
    user = empty_place.user
    (user / "a").write_text("one\ntwo\n")
    (user / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (user / "run").write_text("#!/bin/sh\n")
    (user / "run").chmod(0o755)
    (user / "link").symlink_to("a")
    (user / "folder").mkdir()
    (user / "folder" / "b").write_text("b\n")
    (user / "tracked.log").write_text("ignored but tracked\n")
    (user / ".gitignore").write_text("*.log\n/build/\nnode_modules\n")
    return empty_place.start()
