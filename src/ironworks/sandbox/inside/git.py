"""git as it runs inside a sandbox: nothing of the agent's configuration counts."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

GIT = shutil.which("git", path="/usr/bin:/bin:/usr/local/bin") or "git"
HARDENED = (
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_DEFAULT_REF_FORMAT": "files",
}
NAME, EMAIL = "Ironworks worker", "worker@localhost"
# Bytes on disk are bytes in git: no attribute of the project may convert them.
NEUTRAL = "* -text -eol -crlf -ident -filter -working-tree-encoding\n"
FILE, EXECUTABLE, SYMLINK, GITLINK, FOLDER = b"100644", b"100755", b"120000", b"160000", b"40000"
INCOMING = "refs/heads/ironworks-in"


class Failed(Exception):
    """Told to the host in place of a result."""


class Entry(NamedTuple):
    mode: bytes
    oid: bytes


class Git:
    """git on one git directory, in a clean environment."""

    def __init__(self, git_dir: str) -> None:
        self.git_dir = git_dir
        self.env = {**ENVIRONMENT, "GIT_DIR": git_dir}

    def call(
        self,
        *args: str | bytes,
        stdin: bytes | BinaryIO = b"",
        stdout: int | BinaryIO = subprocess.PIPE,
        env: dict[str, str] | None = None,
        cwd: str = "/",
        timeout_s: float = 600,
    ) -> tuple[int, bytes, str]:
        """Exit code (-1 for a time-out), stdout, the end of stderr."""
        process = self._start(
            args, stdin if not isinstance(stdin, bytes) else subprocess.PIPE, stdout, env, cwd
        )
        try:
            out, err = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return -1, b"", f"no answer within {timeout_s:g} s"
        return process.returncode, out or b"", err[-1000:].decode("utf-8", "replace").strip()

    def run(
        self,
        *args: str | bytes,
        stdin: bytes | BinaryIO = b"",
        env: dict[str, str] | None = None,
        cwd: str = "/",
    ) -> bytes:
        code, out, err = self.call(*args, stdin=stdin, env=env, cwd=cwd)
        if code != 0:
            raise Failed(f"git {os.fsdecode(args[0])}: {err or code}")
        return out

    def prints_more_than(self, limit: int, *args: str) -> bool:
        """Whether stdout is longer than `limit` bytes; it is not kept, and git is ended there."""
        process = self._start(args, subprocess.DEVNULL, subprocess.PIPE, None, "/")
        assert process.stdout is not None
        size = 0
        while size <= limit:
            chunk = process.stdout.read(1 << 20)
            if not chunk:
                break
            size += len(chunk)
        process.kill()
        process.communicate()
        return size > limit

    def _start(
        self,
        args: tuple[str | bytes, ...],
        stdin: int | BinaryIO,
        stdout: int | BinaryIO,
        env: dict[str, str] | None,
        cwd: str,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [GIT, *(part for setting in HARDENED for part in ("-c", setting)), *args],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            cwd=cwd,
        )

    def word(self, *args: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None) -> str:
        return self.run(*args, stdin=stdin, env=env).decode("ascii").strip()

    def init(self, base: str, objects: Iterable[str], bare: bool, built: Iterable[str] = ()) -> None:
        """Make it, with the objects of other repositories in reach and nothing that converts files.

        `built` are patterns that count as ignored, as if a `.gitignore` at the top said so.
        """
        options = ["--bare"] if bare else []
        kind = "sha1" if len(base) == 40 else "sha256"
        self.run(
            "init", "--quiet", "--template=", "--initial-branch=work", f"--object-format={kind}", *options
        )
        os.makedirs(os.path.join(self.git_dir, "info"), exist_ok=True)
        write(os.path.join(self.git_dir, "info", "attributes"), NEUTRAL)
        write(os.path.join(self.git_dir, "info", "exclude"), "".join(f"{pattern}\n" for pattern in built))
        lines = "".join(f"{folder}\n" for folder in objects)
        write(os.path.join(self.git_dir, "objects", "info", "alternates"), lines)


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_file(path: str | bytes, limit: int = 256 * 1024 * 1024) -> bytes:
    """A regular file's content. OSError for everything else: a FIFO would never answer."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
            raise OSError(f"{os.fsdecode(path)} is no file that can be read")
        return file.read()


def salvage(index: str, copy: str) -> None:
    """Copy an index. OSError if there is none that can be read."""
    data = read_file(index)
    with open(copy, "wb") as file:
        file.write(data)
