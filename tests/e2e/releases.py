"""Two neighbouring releases of a real package, as its index serves them, and the patches between them."""

import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

IDENTITY = ("-c", "user.name=Release", "-c", "user.email=release@localhost")


class Releases:
    """A repository of an older release; tags `older` and `newer` name the trees of both."""

    def __init__(self, folder: Path, name: str, older: str, newer: str, *, extra: Mapping[str, str]) -> None:
        """`extra` are files added to both. Skips the test when no index serves the two."""
        self.repository = folder / f"{name} repository"
        self.repository.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")
        for version, tag in ((newer, "newer"), (older, "older")):
            self._replace(unpacked(fetched(folder / version, f"{name}=={version}")), extra)
            self._git("add", "-A", "-f")
            self._git(*IDENTITY, "commit", "-q", "--allow-empty", "-m", f"{name} {version}")
            self._git("tag", tag)
        # One commit alone: the future is not to be found in the history.
        commit = self._git(*IDENTITY, "commit-tree", "-m", f"{name} {older}", "older^{tree}").strip()
        self._git("reset", "-q", "--hard", commit)

    def changed(self) -> set[str]:
        return set(self._git("diff", "--name-only", "older", "newer").splitlines())

    def patch(self, paths: Sequence[str]) -> str:
        """What the newer release did to `paths`."""
        return self._git("diff", "--binary", "older", "newer", "--", *paths)

    def difference(self, commit: str) -> str:
        """Names of the files in which `commit` is not the newer release."""
        return self._git("diff", "--name-only", "newer", commit)

    def _replace(self, tree: Path, extra: Mapping[str, str]) -> None:
        self._git("rm", "-rq", "--ignore-unmatch", "--", ".")
        for source in sorted(tree.rglob("*")):
            target = self.repository / source.relative_to(tree)
            if source.is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(source.read_bytes())
        for path, text in extra.items():
            (self.repository / path).write_text(text, "utf-8")

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.repository, capture_output=True, timeout=60, check=True
        )
        return done.stdout.decode("utf-8", "surrogateescape")


def fetched(folder: Path, requirement: str) -> Path:
    """The source archive of a release, through pip as this machine has it configured."""
    folder.mkdir(parents=True)
    name = requirement.partition("==")[0]
    words = ["download", "--quiet", "--no-deps", "--no-binary", name, "--dest", str(folder), requirement]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words], capture_output=True, timeout=120, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        pytest.skip("needs a package index that pip can reach: it did not answer")
    if "No module named pip" in done.stderr:
        pytest.skip("needs pip beside the interpreter")
    if done.returncode:
        pytest.skip(f"needs a package index that pip can reach: {done.stderr.strip()[-300:]}")
    return next(folder.glob("*.tar.gz"))


def unpacked(archive: Path) -> Path:
    """The one folder in a source archive."""
    folder = archive.parent / "unpacked"
    with tarfile.open(archive) as tar:
        # Python 3.11 has the filter from 3.11.4 on.
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)
    return next(folder.iterdir())
