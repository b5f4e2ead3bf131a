"""What sandboxes are measured beside. Each peer starts one command, and says why where it is not there."""

import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from bars.base import Base, cache, npm_install
from ironworks.sandbox.local.boot import find_bwrap, overlay
from ironworks.sandbox.local.view import system_arguments

SRT = ("@anthropic-ai/sandbox-runtime", "0.0.83")
TIMEOUT_S = 600
IMAGE = "ironworks-benchmark:base"
PROGRAM = "/usr/bin/true"


class MissingPeer(Exception):
    """The peer cannot be measured here; the text says what it lacks."""


Peer = Callable[[], float]
"""Seconds for one new place and its first command."""


def timed(command: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> float:
    started_s = time.perf_counter()
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise MissingPeer(f"{command[0]}: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}")
    return time.perf_counter() - started_s


def plain() -> float:
    """A process, and nothing around it: what any exec is compared with."""
    return timed([PROGRAM])


def bare_bwrap(base: Base, folder: Path) -> Peer:
    """bubblewrap with an overlay on the base, and nothing else of ours. The place ends with its command."""
    numbers = iter(range(1 << 30))

    def once() -> float:
        place = folder / f"bare-{next(numbers)}"
        upper, scratch = place / "upper", place / "scratch"
        for part in (upper, scratch):
            part.mkdir(parents=True)
        shown = [*system_arguments(), *overlay([base.path], upper, scratch, "/work")]
        return timed(
            [find_bwrap(), "--unshare-all", "--proc", "/proc", "--dev", "/dev", *shown, "--", PROGRAM], env={}
        )

    return once


def docker_run(base: Base) -> Peer:
    """`docker run` of an image that holds the base and one program; never pulls."""
    docker = shutil.which("docker")
    if docker is None:
        raise MissingPeer("docker: no such program")
    timed([docker, "version"])
    with subprocess.Popen(
        [docker, "import", "-", IMAGE], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            for path in libraries():
                archive.add(Path(path).resolve(), path)
            archive.add(base.path, "work")
    if process.returncode:
        raise MissingPeer("docker: the image could not be imported")
    command = [docker, "run", "--rm", "--pull", "never", "--network", "none", "-w", "/work", IMAGE, PROGRAM]
    return lambda: timed(command)


def libraries() -> list[str]:
    """A program and what its loader needs, under the names it knows them by."""
    listed = subprocess.run(["ldd", PROGRAM], capture_output=True, check=True, text=True, timeout=60).stdout
    return [PROGRAM, *(word for word in listed.split() if word.startswith("/"))]


def remove_image() -> None:
    subprocess.run(["docker", "rmi", "-f", IMAGE], capture_output=True, check=False, timeout=TIMEOUT_S)


def worktree_copy(base: Base, folder: Path) -> Peer:
    """`git worktree add`, then a copy of the dependencies, then the command."""
    repository = folder / "repository"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=B", "-c", "user.email=b@localhost"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "base"]):
        timed([*git, *words])
    numbers = iter(range(1 << 30))

    def once() -> float:
        place = folder / f"worktree-{next(numbers)}"
        seconds = timed([*git, "worktree", "add", "-q", "--detach", str(place)])
        seconds += timed(["cp", "-a", str(base.path / "node_modules"), str(place)])
        seconds += timed([PROGRAM], cwd=place)
        shutil.rmtree(place)
        timed([*git, "worktree", "prune"])
        return seconds

    return once


def sandbox_runtime(folder: Path) -> Peer:
    """`srt`, pinned, with our bubblewrap: it wraps one command, and keeps no place."""
    lacking = [name for name in ("node", "npm", "socat", "rg") if shutil.which(name) is None]
    if lacking:
        raise MissingPeer(f"{SRT[0]} needs {', '.join(lacking)}")
    place = cache() / f"srt-{SRT[1]}"
    program = place / "node_modules" / ".bin" / "srt"
    if not program.exists():
        shutil.rmtree(place, ignore_errors=True)
        try:
            npm_install(place, dict([SRT]))
        except subprocess.SubprocessError as error:
            raise MissingPeer(f"{SRT[0]}: npm cannot install it ({type(error).__name__})") from None
    home = folder / "srt"
    home.mkdir()
    env = {"HOME": str(home), "PATH": f"{Path(find_bwrap()).parent}:/usr/local/bin:/usr/bin:/bin"}
    return lambda: timed([str(program), PROGRAM], env=env, cwd=home)
