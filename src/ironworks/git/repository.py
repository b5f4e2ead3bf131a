"""The user's repository, seen from outside: where its git directory is, and whether writing stays there."""

import os
from collections.abc import Iterator
from pathlib import Path

from ironworks.core.errors import ConfigError, RefusedError
from ironworks.git.command import Git


class Repository:
    """A repository of which nothing is trusted: its config and hooks never run (see `Git`).

    `path` is a checkout, its `.git`, or a bare repository. ConfigError when it is none; RefusedError when its
    files lead elsewhere, so that a push would write outside of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.git_dir = find_git_dir(self.path)
        self.git = Git(self.git_dir)
        common = find_common_dir(self.git_dir)
        for link in symlinks(common):
            raise RefusedError(
                f"{link} is a symbolic link: writing to this repository would write elsewhere",
                hint="use a clone of it",
            )

    def object_format(self) -> str:
        """`sha1` or `sha256`."""
        return self.git.run("rev-parse", "--show-object-format").decode("ascii").strip()

    def current_branch(self) -> str:
        """Name of the branch checked out. ConfigError when there is none, or it has no commit yet."""
        head = self.git.run("symbolic-ref", "--quiet", "HEAD", ok=(0, 1)).decode("utf-8", "surrogateescape")
        branch = head.rstrip("\n").removeprefix("refs/heads/")
        if not branch:
            raise ConfigError(
                f"{self.path} has no branch checked out", hint="check out the branch to build on"
            )
        if not self.refs(f"refs/heads/{branch}"):
            raise ConfigError(f"branch {branch} of {self.path} has no commit yet", hint="make a first commit")
        return branch

    def checkout_of(self, branch: str) -> str:
        """Path of the work tree, linked ones included, that has `branch` checked out; empty when none has."""
        listing = self.git.run("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}")
        return listing.decode("utf-8", "surrogateescape").removesuffix("\n")

    def refs(self, prefix: str) -> dict[str, str]:
        """Refs whose name starts with `prefix`, with the ids they hold at this moment."""
        folder = prefix.rpartition("/")[0]
        listing = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", *filter(None, [folder]))
        pairs = (line.partition(" ") for line in listing.decode("utf-8", "surrogateescape").splitlines())
        return {name: oid for oid, _, name in pairs if name.startswith(prefix)}


def find_git_dir(path: Path) -> Path:
    """The git directory of a checkout, a linked work tree, or the directory itself."""
    dot_git = path if path.name == ".git" else path / ".git"
    if dot_git.is_symlink():
        raise RefusedError(
            f"{dot_git} is a symbolic link", hint="name the git directory itself if you trust it"
        )
    if dot_git.is_file():
        return linked_git_dir(dot_git)
    git_dir = dot_git if dot_git.is_dir() else path
    is_linked = (git_dir / "commondir").is_file()
    if not (git_dir / "HEAD").exists() or not ((git_dir / "objects").is_dir() or is_linked):
        raise ConfigError(
            f"{path} is not a git repository", hint="run `git init` there, or name another folder"
        )
    return git_dir.resolve()


def linked_git_dir(dot_git: Path) -> Path:
    """Follow a `.git` file, but only to a git directory that points back: it could name any repository."""
    text = dot_git.read_bytes()[:8192].decode("utf-8", "surrogateescape")
    git_dir = (dot_git.parent / text.removeprefix("gitdir:").strip()).resolve()
    back = git_dir / "gitdir"
    if back.is_file() and Path(os.fsdecode(back.read_bytes()[:8192]).strip()).resolve() == dot_git.resolve():
        return git_dir
    raise RefusedError(
        f"{dot_git} names {git_dir}, which does not name it back",
        hint="name the git directory itself if you trust it",
    )


def find_common_dir(git_dir: Path) -> Path:
    """Where refs and objects are: elsewhere for a linked work tree, then only where git itself puts them."""
    if not (git_dir / "commondir").exists():
        return git_dir
    common = (git_dir / os.fsdecode((git_dir / "commondir").read_bytes()[:8192]).strip()).resolve()
    if git_dir.parent != common / "worktrees":
        raise RefusedError(f"{git_dir} says that its objects are in {common}", hint="use a clone of it")
    return common


def symlinks(common: Path) -> Iterator[Path]:
    """Symbolic links on any path that a push writes to."""
    for name in ("objects", "refs", "logs", "packed-refs", "shallow"):
        if (common / name).is_symlink():
            yield common / name
    yield from [path for path in (common / "objects").iterdir() if path.is_symlink()]
    for top in ("refs", "logs"):
        for folder, folders, files in os.walk(common / top):
            yield from (path for name in (*folders, *files) if (path := Path(folder, name)).is_symlink())
