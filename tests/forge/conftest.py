"""A user's repository, and depots of several factories in front of it."""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ironworks.git.depot import Depot

Git = Callable[..., str]


class HandClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return 0.0

    def pass_s(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A checkout with one commit on `main`."""
    folder = tmp_path / "user's repo 🧨"
    folder.mkdir()
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a").write_text("one\n")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture
def git(user: Path) -> Git:
    """git in the user's repository, as the user runs it."""
    return lambda *args, stdin=b"": run_git(user, *args, stdin=stdin)


@pytest.fixture
def new_depot(tmp_path: Path, user: Path) -> Callable[[str], Depot]:
    """Depots of factories with state directories of their own."""
    return lambda name: Depot(tmp_path / name / "depot.git", user)


@pytest.fixture
def depot(new_depot: Callable[[str], Depot]) -> Depot:
    return new_depot("state")


def run_git(folder: Path, *args: str, stdin: bytes = b"") -> str:
    who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@localhost"}
    who |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@localhost"}
    result = subprocess.run(
        ["git", "-c", "safe.directory=*", *args],
        cwd=folder,
        env={**os.environ, **who},
        input=stdin,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return result.stdout.decode().strip()
