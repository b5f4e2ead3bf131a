"""A repository to stand on, made with the real git."""

import os
import subprocess
from pathlib import Path

WHO = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@localhost"}
WHO |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@localhost"}


def git(folder: Path, *args: str) -> str:
    """stdout of `git ARGS` in `folder`."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *args],
        cwd=folder,
        env=os.environ | WHO,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def commit(folder: Path, files: dict[str, str], message: str = "change") -> str:
    """Commit these files; the commit's id."""
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """A checkout of branch `main` with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"README": "ground\n"} | (files or {}))
    return folder
