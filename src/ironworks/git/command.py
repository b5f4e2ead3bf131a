"""Runs the git binary so that no repository, however hostile, can make it run or fetch anything else."""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from ironworks.core.errors import GitError, RefusedError

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

# Given by -c, which wins over whatever a repository's own config says or includes.
SETTINGS: tuple[str, ...] = (
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.logAllRefUpdates=false",
    "core.fsync=committed",
    # Waiting for another writer's lock beats failing: parallel stages share one depot.
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=10000",
    "core.bigFileThreshold=32m",
    f"attr.tree={EMPTY_TREE}",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "transfer.hideRefs=!refs",
    "receive.denyCurrentBranch=refuse",
    "receive.denyDeletes=false",
    "receive.denyNonFastForwards=false",
    "receive.autogc=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "commit.gpgSign=false",
)
FLAGS: tuple[str, ...] = tuple(part for setting in SETTINGS for part in ("-c", setting))

# git drops -c settings on its way into the other repository, so they are given again.
UPLOAD_PACK = "--upload-pack=" + shlex.join(["git", *FLAGS, "upload-pack"])
RECEIVE_PACK = "--receive-pack=" + shlex.join(["git", *FLAGS, "receive-pack"])

ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SSH_COMMAND": "false",
    "GIT_PROXY_COMMAND": "false",
}
KEPT = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")
ERROR_TAIL = 2000
ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a git process ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def reason(self) -> str:
        return self.err[-ERROR_TAIL:].decode("utf-8", "replace").strip() or f"exit code {self.code}"


class Git:
    """The git binary, bound to one repository by its git directory. Thread-safe; holds no state."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir.absolute()

    def run(
        self,
        *args: str,
        stdin: bytes | FileIO = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        timeout_s: float = 120,
        ok: tuple[int, ...] = (0,),
    ) -> bytes:
        """stdout of `git ARGS`. GitError, with the end of stderr, unless it exits with one of `ok`."""
        finished = self.call(*args, stdin=stdin, env=env, cwd=cwd, timeout_s=timeout_s)
        if finished.code not in ok:
            raise GitError(f"git {args[0]}: {finished.reason}")
        return finished.out

    def call(
        self,
        *args: str,
        stdin: bytes | FileIO = b"",
        stdout: FileIO | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        timeout_s: float = 120,
    ) -> Finished:
        """Run to the end, whatever the exit code. `stdout` receives the output in place of memory."""
        process = self._start(args, stdin, stdout, env, cwd)
        try:
            out, err = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise GitError(f"git {args[0]}: no answer within {timeout_s:g} s") from None
        finally:
            end(process)
        return Finished(process.returncode, out or b"", err)

    def head(
        self,
        *args: str,
        max_bytes: int,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> bytes:
        """The first `max_bytes` bytes of stdout; the process is ended there. `stdin` fits a pipe."""
        process = self._start(args, stdin, None, env, ROOT)
        timer = threading.Timer(timeout_s, kill, [process])
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(stdin)
            process.stdin.close()
            out: bytes = process.stdout.read(max_bytes)
            if len(out) < max_bytes and process.wait(timeout_s) != 0:
                assert process.stderr is not None
                raise GitError(
                    f"git {args[0]}: {Finished(process.returncode, b'', process.stderr.read()).reason}"
                )
            return out
        except BrokenPipeError:
            raise GitError(f"git {args[0]}: it ended early") from None
        finally:
            timer.cancel()
            end(process)

    def _start(
        self,
        args: tuple[str, ...],
        stdin: bytes | FileIO,
        stdout: FileIO | None,
        env: Mapping[str, str] | None,
        cwd: Path,
    ) -> "subprocess.Popen[bytes]":
        argv = [argument.encode("utf-8", "surrogateescape") for argument in ("git", *FLAGS, *args)]
        if any(b"\0" in argument for argument in argv):
            raise RefusedError("git: a name with a zero byte in it")
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**kept, **ENVIRONMENT, "GIT_DIR": str(self.git_dir), **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise GitError(f"git cannot be started: {error}", hint="install git 2.39 or newer") from error


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that still runs, with its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a process, reap it, and close its pipes."""
    kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None and not pipe.closed:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
