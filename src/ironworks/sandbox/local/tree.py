"""Folders that a sandbox filled: measured, moved and removed whatever their depth, modes and names are."""

import contextlib
import itertools
import os
import stat
from pathlib import Path

FILE_BYTES = 512
"""What the file system needs for a file beside its content: a million empty ones are not nothing."""


def size_bytes(path: Path) -> int:
    """Of all below. OSError where a folder is closed even to its owner, or too deep to be named."""
    total, folders = 0, [os.fspath(path)]
    while folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    total += FILE_BYTES
                else:
                    with contextlib.suppress(FileNotFoundError):
                        total += FILE_BYTES + entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def make_movable(folder: Path) -> None:
    """Open a folder to its owner, whatever a sandbox has made of its mode: else it cannot be moved."""
    folder.chmod(stat.S_IMODE(folder.lstat().st_mode) | stat.S_IRWXU)


def remove_tree(path: Path) -> None:
    """Remove a tree of any depth, whose folders may forbid it to their owner (an overlay's work folder does).

    Every folder is emptied at the top, after its own folders were moved up beside it. So no path gets longer
    than two names below `path`, and nothing is followed.
    """
    make_movable(path)
    numbers = itertools.count()
    while folders := subfolders(path):
        for folder in folders:
            make_movable(folder)
            for inner in subfolders(folder):
                make_movable(inner)
                inner.rename(path / f"removed-{os.getpid()}-{next(numbers)}")
            remove_files(folder)
            folder.rmdir()
    remove_files(path)
    path.rmdir()


def subfolders(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
