"""Bundled files as a fresh git repository on disk."""

import os
import subprocess
from importlib.resources.abc import Traversable
from pathlib import Path


def copy_files(source: Traversable, folder: Path) -> None:
    """Copy what `source` holds into `folder`, which is made; compiled Python stays behind."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        target = folder / entry.name
        if entry.is_dir():
            if entry.name != "__pycache__":
                copy_files(entry, target)
        elif not entry.name.endswith(".pyc"):
            target.write_bytes(entry.read_bytes())


def commit_all(folder: Path, author: str, message: str) -> None:
    """Make `folder` a repository whose branch `main` has one commit with all that is in it."""
    identity = ["-c", f"user.name={author}", "-c", f"user.email={author.lower().replace(' ', '-')}@localhost"]
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, *identity, "commit", "-q", "-m", message)


def _git(folder: Path, *arguments: str) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, timeout=60)
