"""Two branches from one base, in a depot of their own."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ironworks.git.depot import Depot
from ironworks.git.tree import Blob

Content = str | bytes | Mapping[str, str] | None


def blob(content: Content) -> Blob | None:
    """A file as the case files spell it: text, `{"hex": ...}`, or None for none."""
    if content is None:
        return None
    if isinstance(content, Mapping):
        return Blob(bytes.fromhex(content["hex"]))
    return Blob(content if isinstance(content, bytes) else content.encode())


def pair(
    folder: Path, base: Mapping[str, Content], ours: Mapping[str, Content], theirs: Mapping[str, Content]
) -> tuple[Depot, str, str]:
    """The depot, and the commits of both sides, which hold what they name over the base."""
    repository = folder / "repository.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(repository)], check=True, timeout=30)
    depot = Depot(folder / "depot.git", repository)
    files = {path: made for path, content in base.items() if (made := blob(content))}
    root = depot.commit(depot.write_tree(None, files), (), "base")
    sides = [
        depot.commit(
            depot.write_tree(root, {path: blob(text) for path, text in side.items()}), (root,), "side"
        )
        for side in (ours, theirs)
    ]
    return depot, sides[0], sides[1]


def union_of(base: str, ours: str, theirs: str) -> str:
    """What a union merge makes of three texts: every line of both sides, wherever it may land."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for path, text in zip(paths, (ours, base, theirs), strict=True):
            path.write_text(text, "utf-8")
        argv = ["git", "merge-file", "-p", "--union", *map(str, paths)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout
