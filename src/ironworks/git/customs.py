"""The check a stranger's bundle passes before anything of it enters the depot."""

import os
from io import FileIO
from pathlib import Path

from ironworks.core.errors import RefusedError
from ironworks.git.bundle import BundleHeader, read_header
from ironworks.git.command import Finished, Git

UNPACK_TIMEOUT_S = 600
MAX_PREREQUISITES = 100
MAX_OBJECTS = 1_000_000
MAX_LISTING_BYTES = 128 * 1024 * 1024


class Customs:
    """Unpacks a bundle into `folder`, a quarantine that sees the depot but is not seen from there."""

    def __init__(self, depot: Git, folder: Path) -> None:
        self._git = depot
        self._env = {"GIT_OBJECT_DIRECTORY": str(folder)}
        (folder / "pack").mkdir()
        (folder / "info").mkdir()
        objects = os.path.relpath(depot.git_dir / "objects", folder)
        (folder / "info" / "alternates").write_text(f"{objects}\n", "utf-8")

    def inspect(self, file: FileIO, base: str, max_bytes: int) -> str:
        """The bundle's commit, now in quarantine. RefusedError with the reason if anything is wrong."""
        header = read_header(file)
        self._check_prerequisites(header, base)
        if header.objects:
            self._unpack(file, header, max_bytes)
        self._check_head(header.head, base)
        self._check_contents(header.head, base, max_bytes)
        self._check_tree(header.head)
        return header.head

    def _check_prerequisites(self, header: BundleHeader, base: str) -> None:
        if len(header.prerequisites) > MAX_PREREQUISITES:
            raise RefusedError(f"the bundle has {len(header.prerequisites)} prerequisites")
        if not header.prerequisites:
            return
        beyond = self._git.call("rev-list", "--max-count=1", *header.prerequisites, f"^{base}")
        if beyond.code or beyond.out:
            raise RefusedError(f"the bundle builds on a commit that is not part of {base}")

    def _unpack(self, file: FileIO, header: BundleHeader, max_bytes: int) -> None:
        if header.objects > MAX_OBJECTS:
            raise RefusedError(f"the bundle has {header.objects} objects, more than {MAX_OBJECTS}")
        file.seek(header.pack_at)
        args = ("index-pack", "--stdin", "--fix-thin", "--strict", f"--max-input-size={max_bytes}")
        unpacked = self._git.call(*args, stdin=file, env=self._env, timeout_s=UNPACK_TIMEOUT_S)
        if unpacked.code:
            raise refused("its objects are not sound", unpacked)

    def _check_head(self, head: str, base: str) -> None:
        kind = self._git.call("cat-file", "-t", head, env=self._env)
        if kind.out != b"commit\n":
            raise RefusedError("the bundle's ref is not a commit in it")
        contains = self._git.call("merge-base", "--is-ancestor", base, head, env=self._env)
        if contains.code:
            raise RefusedError(f"the bundle's commit does not build on {base}")

    def _check_contents(self, head: str, base: str, max_bytes: int) -> None:
        """Everything new is there, and not too large once unpacked."""
        args = ("rev-list", "--objects", "--no-object-names", head, f"^{base}")
        listed = self._git.call(*args, env=self._env, timeout_s=UNPACK_TIMEOUT_S)
        if listed.code:
            raise refused("it is incomplete", listed)
        sizes = self._git.run("cat-file", "--batch-check=%(objectsize)", stdin=listed.out, env=self._env)
        total = sum(int(size) for size in sizes.split())
        if total > max_bytes:
            raise RefusedError(f"the bundle unpacks to {total} bytes, more than {max_bytes}")

    def _check_tree(self, head: str) -> None:
        """A few small trees that contain each other many times over can list billions of files."""
        args = ("ls-tree", "-r", "-z", "--name-only", head)
        if len(self._git.head(*args, env=self._env, max_bytes=MAX_LISTING_BYTES)) == MAX_LISTING_BYTES:
            raise RefusedError("the bundle's commit has too many files")


def refused(what: str, finished: Finished) -> RefusedError:
    return RefusedError(f"the bundle is refused, {what}: {finished.reason}")


def keep_packs(folder: Path, packs: Path) -> None:
    """Move what passed out of quarantine; git sees a pack once its `.idx` is there, so that goes last."""
    for file in sorted((folder / "pack").iterdir(), key=lambda file: file.suffix == ".idx"):
        file.replace(packs / file.name)
