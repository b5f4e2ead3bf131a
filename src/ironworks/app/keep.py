"""Sandboxes that people make by hand: what was ordered, and how to reach the keeper in which each one lives.

A sandbox ends with the process that made it. So every one has a keeper, a process of its own in the
background that answers on a socket. When a keeper has ended the disk is left, and the next call starts
another one on it.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ironworks.app.control import reachable
from ironworks.app.frame import Kind, frames, json_frame, receive
from ironworks.app.place import state_home
from ironworks.core.errors import (
    BusyError,
    IronworksError,
    MissingError,
    SandboxError,
    StoreError,
    UsageError,
)
from ironworks.core.models import Model
from ironworks.core.ports import SandboxSpec

NAME = re.compile(r"[a-z0-9-]{1,100}")
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 40.0
POLL_S = 0.02

OnOutput = Callable[[Kind, bytes], None]


class Order(Model):
    """What a sandbox was made with, for the keeper that makes it again."""

    backend: str = "local"
    spec: SandboxSpec
    allow: tuple[str, ...] = ()
    """Hosts that its gateway lets out; without any there is no gateway."""


class Kept(NamedTuple):
    """One sandbox of a state folder, by its name. Its files are there from the first order to `forget`."""

    state: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.state / "keepers"

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def order(self) -> Order | None:
        """What was ordered; None when nothing was, StoreError when it cannot be read."""
        try:
            return Order.model_validate_json(self._file("json").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise StoreError(f"{self._file('json')} cannot be read: {error}") from error

    def write(self, order: Order) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._file("json.new")
        draft.touch(mode=0o600)
        draft.write_text(order.to_json(), "utf-8")
        draft.replace(self._file("json"))

    def forget(self) -> None:
        for kind in ("sock", "json", "log", "lock"):
            self._file(kind).unlink(missing_ok=True)

    @contextlib.contextmanager
    def hold(self, how: int = fcntl.LOCK_EX, *, patience_s: float = 1.0) -> Iterator[bool]:
        """Be its one keeper in the block; False when another process is. The lock goes with the process.

        The short patience is for `is_kept`, which takes the same lock for an instant.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _locked(descriptor, how, time.monotonic() + patience_s)
        finally:
            os.close(descriptor)

    def _file(self, kind: str) -> Path:
        return self.folder / f"{self.name}.{kind}"


def kept(state: Path | None, name: str) -> Kept:
    """The sandbox `name` of a state folder, by default the user's own; UsageError for what is no name."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a sandbox", hint="1 to 100 of a-z, 0-9 and -")
    return Kept(state_folder(state), name)


def state_folder(state: Path | None) -> Path:
    """Where hand-made sandboxes are kept; made, for this user only."""
    folder = (state or state_home() / "sandbox").expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = "name another one with --state DIR"
        raise UsageError(f"{str(folder)!r} cannot be made: {error.strerror}", hint=hint) from error
    return folder


def names(state: Path) -> list[str]:
    """Every name that something was ordered for."""
    return sorted(path.stem for path in (state / "keepers").glob("*.json"))


def is_kept(one: Kept) -> bool:
    """Whether a keeper holds it now."""
    with one.hold(fcntl.LOCK_SH, patience_s=0) as free:
        return not free


def _locked(descriptor: int, how: int, deadline_s: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)
        else:
            return True


def call(
    one: Kept, verb: str, data: bytes = b"", *, on_output: OnOutput | None = None, **fields: Any
) -> dict[str, Any]:
    """Ask the keeper of a sandbox, which is started if there is none. Raises what it raised."""
    connection = _connection(one)
    if connection is None:
        start(one)
        connection = _connection(one)
    if connection is None:
        raise BusyError(f"the keeper of {one.name!r} does not answer", hint=f"see {one.log}")
    with connection:
        _send(connection, verb, data, fields)
        while True:
            kind, answer = receive(connection)
            if kind == "result":
                return dict(json.loads(answer))
            if kind == "error":
                raise raised(json.loads(answer))
            if on_output is not None:
                on_output(kind, answer)


def start(one: Kept) -> None:
    """Start its keeper and wait until the sandbox is up. Nothing when another process has just done so."""
    reading, writing = os.pipe()
    with one.log.open("ab") as log, os.fdopen(reading, "rb") as answers:
        # -P: what lies in the folder we are called from is no module of ours.
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "ironworks.app.keeper", str(one.state), one.name, str(writing)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", pass_fds=(writing,),
            start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        try:
            there = select.select([answers], [], [], START_TIMEOUT_S)[0]
            answer = answers.readline() if there else b""
        except BaseException:
            keeper.terminate()
            raise
    if b"error" in answer and one.order() is None:
        one.forget()
    if not answer:
        keeper.terminate()
        raise SandboxError(f"the keeper of {one.name!r} did not start", hint=f"see {one.log}")
    if error := json.loads(answer).get("error"):
        raise raised(error)


def end(one: Kept) -> None:
    """End its keeper, and so all that runs in the sandbox; its disk stays. BusyError if it will not."""
    connection = _connection(one)
    if connection is not None:
        with connection, contextlib.suppress(IronworksError, OSError):
            _send(connection, "end", b"", {})
            receive(connection)
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while is_kept(one):
        if time.monotonic() > deadline_s:
            raise BusyError(f"the keeper of {one.name!r} does not end", hint=f"see {one.log}")
        time.sleep(POLL_S)


def raised(error: dict[str, str]) -> IronworksError:
    """The error that a keeper told."""
    kinds = {kind.code: kind for kind in _below(IronworksError)}
    return kinds.get(error["code"], SandboxError)(error["message"], hint=error["hint"])


def told(error: IronworksError) -> dict[str, str]:
    """The same, on its way."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def missing(name: str, known: list[str], what: str = "sandbox") -> MissingError:
    import difflib

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "see: ironworks sandbox ls"
    return MissingError(f"there is no {what} {name!r}", hint=hint)


def _below(kind: type[IronworksError]) -> Iterator[type[IronworksError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


def _connection(one: Kept) -> socket.socket | None:
    """To its keeper; None when there is none. One that is just starting is waited for."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(one.socket) as address:
                connection.connect(address)
            return connection
        except OSError:
            connection.close()
        if not is_kept(one) or time.monotonic() > deadline_s:
            return None
        time.sleep(POLL_S)


def _send(connection: socket.socket, verb: str, data: bytes, fields: dict[str, Any]) -> None:
    try:
        connection.sendall(json_frame("request", {"verb": verb, **fields}))
        if data:
            connection.sendall(b"".join(frames("data", data)))
        connection.sendall(b"".join(frames("data", b"")))
    except OSError as error:
        # It may have said why before it hung up.
        if not isinstance(error, BrokenPipeError | ConnectionResetError):
            raise
