"""Tiny Links as a fresh git repository on disk, its backlog in an order of its own."""

import random
import re
from importlib import resources
from pathlib import Path

from ironworks.testing.repository import commit_all, copy_files

FILES = resources.files("ironworks.testing.demo")


def make_repository(folder: Path, *, seed: int = 1, more: str = "") -> Path:
    """Write Tiny Links into the empty or absent `folder` and commit it on `main`; the folder.

    `seed` shuffles the entries of the backlog; 1 leaves them as they are. `more` holds entries to be added.
    """
    copy_files(FILES / "tiny_links", folder)
    backlog = folder / "backlog.md"
    backlog.write_text(_shuffled(f"{backlog.read_text('utf-8').rstrip()}\n\n{more}", seed), "utf-8")
    commit_all(folder, "Tiny Links", "Tiny Links 1.0")
    return folder


def _shuffled(backlog: str, seed: int) -> str:
    head, *entries = re.split(r"^(?=## )", backlog, flags=re.MULTILINE)
    entries = [f"{entry.rstrip()}\n" for entry in entries]
    if seed != 1:
        random.Random(seed).shuffle(entries)
    return head + "\n".join(entries)


def write_hidden_suite(folder: Path) -> Path:
    """The suite that grades Tiny Links, one test for each issue that can be built; the folder."""
    copy_files(FILES / "hidden", folder)
    return folder
