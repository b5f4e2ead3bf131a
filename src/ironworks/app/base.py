"""Reads the base branch's `ironworks.toml` straight from the repository's objects."""

from pathlib import Path

from ironworks.app.configuration import BaseFile, ReadBase
from ironworks.app.document import DOCUMENT_BYTES
from ironworks.app.place import CONFIG_NAME
from ironworks.core.errors import ConfigError, MissingError
from ironworks.git.repository import Repository


def base_reader(root: Path) -> ReadBase:
    """A reader for the repository at `root` (a checkout or a bare repository).

    It raises MissingError when the branch does not exist, ConfigError when no branch is named and none is
    checked out, or when the file there is a symbolic link or larger than a megabyte.
    """
    repository = Repository(root)

    def read(branch: str) -> BaseFile:
        branch = branch or repository.current_branch()
        commit = repository.refs(f"refs/heads/{branch}").get(f"refs/heads/{branch}")
        if commit is None:
            raise MissingError(f"there is no branch {branch!r} in {root}", hint=f"git -C {root} branch")
        return BaseFile(branch, commit, _blob(repository, commit, branch))

    return read


def _blob(repository: Repository, commit: str, branch: str) -> bytes | None:
    listing = repository.git.run("ls-tree", "-l", "-z", "--full-tree", commit, "--", CONFIG_NAME)
    if not listing:
        return None
    mode, kind, oid, size = listing.partition(b"\t")[0].decode("ascii").split()
    if kind != "blob" or mode == "120000":
        raise ConfigError(f"{CONFIG_NAME} on {branch} is not a regular file")
    if int(size) > DOCUMENT_BYTES:
        raise ConfigError(f"{CONFIG_NAME} on {branch} is larger than {DOCUMENT_BYTES} bytes")
    return repository.git.run("cat-file", "blob", oid)
