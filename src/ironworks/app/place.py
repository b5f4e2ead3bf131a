"""Where a factory lives: its repository, its state directory, its lock. Cheap to import: every verb does."""

import fcntl
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ironworks.core.errors import BusyError, ConfigError
from ironworks.git.repository import find_common_dir, find_git_dir

CONFIG_NAME = "ironworks.toml"


class Place(NamedTuple):
    """One repository and the state directory that belongs to it. All paths absolute."""

    root: Path
    """The checkout's top folder; the repository itself when it is bare."""
    git_dir: Path
    """The repository's own git folder, shared by its linked worktrees: "the remote" of the depot."""
    bare: bool
    state: Path

    @property
    def config(self) -> Path:
        return self.root / CONFIG_NAME

    @property
    def database(self) -> Path:
        return self.state / "ironworks.db"

    @property
    def depot(self) -> Path:
        return self.state / "depot.git"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def socket(self) -> Path:
        return self.state / "control.sock"


def find_place(start: Path, state: Path | None = None) -> Place:
    """The repository that holds `start` (a file or folder), and its state; ConfigError if none does.

    Nothing is created and git is not run: a stranger's repository must not run anything by being looked at.
    """
    here = _absolute(start)
    for folder in (here, *here.parents):
        found = _repository_at(folder)
        if found is not None:
            root, git_dir, bare = found
            chosen = _absolute(state) if state else default_state(git_dir)
            return Place(root=root, git_dir=git_dir, bare=bare, state=chosen)
    raise ConfigError(
        f"{str(here)!r} is in no git repository", hint="go to one, or name it with --repository DIR"
    )


def default_state(git_dir: Path) -> Path:
    """`$XDG_STATE_HOME/ironworks/<name>-<8 hex of the path>`: one folder for all its worktrees."""
    home = git_dir.parent if git_dir.name == ".git" else git_dir
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", home.name).strip("-.")[:40] or "repository"
    return state_home() / f"{name}-{crc32(os.fsencode(home)):08x}"


def state_home() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state")


def config_home() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config")


def make_state(place: Place) -> None:
    """Create the state directory, for this user only; ConfigError when it cannot be."""
    try:
        place.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the state directory {str(place.state)!r} cannot be made: {error.strerror}",
            hint="name another one with --state DIR",
        ) from error


@contextmanager
def hold_lock(state: Path, *, patience_s: float = 1.0) -> Iterator[None]:
    """Be the only factory on this state directory; BusyError names the process that already is.

    The kernel drops the lock with the process, however it ends. The short patience is for `factory_pid`,
    which takes the same lock for an instant to see whether it is free.
    """
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, state, time.monotonic() + patience_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def factory_pid(state: Path) -> int | None:
    """The process that runs a factory on this state directory; None when none does."""
    try:
        descriptor = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def options_for(place: Place) -> str:
    """What a suggested command needs besides, so that it means the same place when typed where we are."""
    words = []
    try:
        found = find_place(Path.cwd()).git_dir
    except (ConfigError, OSError):
        found = None
    if found != place.git_dir:
        words += ["--repository", str(place.root)]
    if place.state != default_state(place.git_dir):
        words += ["--state", str(place.state)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _lock(descriptor: int, state: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BusyError(
                    f"process {_pid_in(descriptor)} already runs a factory on {str(state)!r}",
                    hint="`ironworks attach` shows it, `ironworks stop` ends it",
                ) from None
            time.sleep(0.05)


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 20, 0)
    return int(text) if text.isdigit() else 0


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{str(path)!r} is not a usable path: {error}") from error


def _xdg(variable: str, default: str) -> Path:
    named = os.environ.get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    folder = Path(named) if named.startswith("/") else Path.home() / default
    return folder / "ironworks"


def _repository_at(folder: Path) -> tuple[Path, Path, bool] | None:
    """Top folder, shared git folder and bareness of the repository whose top is `folder`."""
    try:
        if (folder / ".git").exists():
            return folder, find_common_dir(find_git_dir(folder)), False
        if all((folder / name).exists() for name in ("HEAD", "objects", "refs")):
            # Called from inside a checkout's own .git: the checkout is meant.
            return (folder.parent, folder, False) if folder.name == ".git" else (folder, folder, True)
    except OSError as error:
        raise ConfigError(f"the repository at {str(folder)!r} cannot be read: {error.strerror}") from error
    return None
