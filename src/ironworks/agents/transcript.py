"""The files an attempt leaves for people: raw output and normalised events, append-only and bounded."""

import json
import logging
import os
from pathlib import Path
from typing import Literal

from ironworks.core.clock import SystemClock

logger = logging.getLogger(__name__)

MAX_LINE = 65_536
MAX_FILE = 64_000_000
LINE_CUT = b" [line cut]"


class FileTranscript:
    """stdout.log, stderr.log and events.jsonl in `folder`. A failing disk is reported once, never raised."""

    def __init__(self, folder: Path, *, max_file: int = MAX_FILE) -> None:
        """Continues the files a crash left in `folder`. Bounds are in bytes."""
        self.problem = ""
        """Why something could not be written; empty if all was."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._failed(error)
        self._files = {
            name: _BoundedFile(folder / name, max_file)
            for name in ("stdout.log", "stderr.log", "events.jsonl")
        }

    def raw(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self._append(f"{stream}.log", data)

    def event(self, kind: str, **data: object) -> None:
        at = SystemClock().now().isoformat()
        line = _encoded({"at": at, "kind": kind, **data})
        if len(line) > MAX_LINE:
            start = _encoded(data)[: MAX_LINE // 4].decode("utf-8", "replace")
            line = _encoded({"at": at, "kind": kind, "cut": True, "start": start})
        self._append("events.jsonl", line)

    @property
    def dropped(self) -> int:
        """Bytes that were not kept, because there were too many or a line was too long."""
        return sum(file.dropped for file in self._files.values())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _append(self, name: str, data: bytes) -> None:
        try:
            self._files[name].append(data)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self.problem:
            self.problem = str(error)
            logger.warning("the transcript in %s is incomplete: %s", self.folder, error)


def _encoded(record: dict[str, object]) -> bytes:
    # Escaped, so that a lone surrogate cannot make the file unreadable.
    return json.dumps(record, default=str).encode() + b"\n"


class _BoundedFile:
    """Appends until the file is full, then says so once. Unbuffered: what was said survives a crash."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor = -1
        self._size = 0
        self._column = 0
        self._full = False
        self.dropped = 0

    def append(self, data: bytes) -> None:
        if self._full or not data:
            self.dropped += len(data)
            return
        if self._descriptor < 0:
            self._descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            self._size = os.fstat(self._descriptor).st_size
        data = self._fold(data)
        if self._size + len(data) > self._limit:
            self._full = True
            self.dropped += self._size + len(data) - self._limit
            marker = f"\n[ironworks: no more than {self._limit} bytes are kept]\n".encode()
            data = data[: max(0, self._limit - self._size)] + marker
        while data:
            written = os.write(self._descriptor, data)
            self._size += written
            data = data[written:]

    def _fold(self, data: bytes) -> bytes:
        """Cuts what goes beyond MAX_LINE in a line, also across calls."""
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if len(data) <= MAX_LINE and self._column + (len(data) if first < 0 else first) <= MAX_LINE:
            self._column = self._column + len(data) if first < 0 else len(data) - last - 1
            return data
        lines = data.split(b"\n")
        kept = []
        for index, line in enumerate(lines):
            kept.append(self._fit(line))
            self._column = 0 if index < len(lines) - 1 else self._column + len(line)
        return b"\n".join(kept)

    def _fit(self, line: bytes) -> bytes:
        room = MAX_LINE - self._column
        if len(line) <= room:
            return line
        return line[:room] + LINE_CUT if room >= 0 else b""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._full = True
