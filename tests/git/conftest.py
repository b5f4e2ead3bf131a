"""A user's repository to build on, made by git as a user would."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ironworks.git.depot import Depot

GitCall = Callable[..., str]


def plain_git(
    *args: str | bytes | Path, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> str:
    """git with no protection at all, as a control: what is hostile does happen here."""
    who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@localhost"}
    who |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@localhost"}
    result = subprocess.run(
        ["git", *args],
        cwd=cwd,
        env={**os.environ, **who, **(env or {})},
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    if result.returncode:
        raise RuntimeError(f"git {args!r}: {result.stderr.decode('utf-8', 'replace')}")
    return result.stdout.decode("utf-8", "surrogateescape").strip()


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A checkout with one commit on `main`: file a (three lines), executable run, symlink link, folder/b."""
    folder = tmp_path / "user's repo"
    folder.mkdir()
    plain_git("init", "--quiet", "--initial-branch=main", cwd=folder)
    (folder / "a").write_text("one\ntwo\nthree\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "folder").mkdir()
    (folder / "folder" / "b").write_bytes(b"\x00\xff\r\n")
    plain_git("add", "-A", cwd=folder)
    plain_git("commit", "--quiet", "-m", "first", cwd=folder)
    return folder


@pytest.fixture
def depot(tmp_path: Path, user: Path) -> Depot:
    return Depot(tmp_path / "state" / "depot.git", user)


@pytest.fixture
def base(depot: Depot) -> str:
    """The tip of `main`, synced."""
    return depot.sync("main")


@pytest.fixture
def git() -> GitCall:
    return plain_git
