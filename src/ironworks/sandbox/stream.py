"""One output stream of a command: a pipe whose end is kept, while every chunk is shown as it comes."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Self

CHUNK_BYTES = 1 << 18
FILE_MAX_BYTES = 8 << 30
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class Stream:
    """The reading end; `inlet` goes to the command. Used from the event loop that made it."""

    def __init__(
        self,
        failure: "asyncio.Future[None]",
        *,
        keep_bytes: int,
        show: Callable[[bytes], None] | None = None,
        to: Path | None = None,
    ) -> None:
        """`failure` gets what `show` or writing to `to` raises."""
        self._failure = failure
        self._keep = 0 if to else keep_bytes
        self._show = show
        self._file = open_for_writing(to) if to else None
        self._written = 0
        self._kept = bytearray()
        self.truncated = False
        self._loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[None] = self._loop.create_future()
        """Done at end of file."""
        self._outlet, self.inlet = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._outlet, False)
        self._loop.add_reader(self._outlet, self._read)

    def kept(self) -> bytes:
        return bytes(self._kept[max(0, len(self._kept) - self._keep) :])

    def drain(self) -> None:
        """Take what already stands in the pipe, at most what a pipe holds."""
        for _ in range(8):
            if not self.finished.done():
                self._read()

    def close_inlet(self) -> None:
        if self.inlet >= 0:
            os.close(self.inlet)
            self.inlet = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_inlet()
        self._loop.remove_reader(self._outlet)
        os.close(self._outlet)
        if self._file is not None:
            os.close(self._file)

    def _read(self) -> None:
        try:
            data = os.read(self._outlet, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._outlet)
            self.finished.set_result(None)
            return
        try:
            self._take(data)
        # Whatever the caller's callback raises ends the command, and goes to the caller.
        except Exception as error:
            self._loop.remove_reader(self._outlet)
            if not self._failure.done():
                self._failure.set_exception(error)

    def _take(self, data: bytes) -> None:
        if self._show:
            self._show(data)
        if self._file is not None:
            self._written += len(data)
            if self._written > FILE_MAX_BYTES:
                self.truncated = True
            else:
                write_all(self._file, data)
            return
        self._kept += data
        if len(self._kept) > self._keep:
            self.truncated = True
        if len(self._kept) > 2 * self._keep + CHUNK_BYTES:
            del self._kept[: len(self._kept) - self._keep]


def open_for_writing(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def memory_file(data: bytes) -> BinaryIO:
    """A sealed memory file, at its start: stdin of any size that nobody has to feed."""
    file = os.fdopen(os.memfd_create("ironworks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b", buffering=0)
    write_all(file.fileno(), data)
    file.seek(0)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file
