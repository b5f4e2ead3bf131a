"""Reads what an exchange consumed out of the answer as it passes by."""

import json
from typing import Any

from ironworks.egress.dialect import Dialect
from ironworks.egress.tokens import Tokens

_LINE_BYTES = 4 << 20


class Meter:
    """Fed with an answer's bytes in any pieces. Keeps at most one line of a stream, or one document."""

    def __init__(self, dialect: Dialect, *, streaming: bool) -> None:
        self._dialect = dialect
        self._streaming = streaming
        self._pending = bytearray()
        self._usage: dict[str, Any] = {}
        self._skipping = False
        self.ended = False
        """The stream has said that it is complete: `tokens` is final."""

    def feed(self, data: bytes) -> None:
        self._pending += data
        if not self._streaming:
            return
        *lines, rest = bytes(self._pending).split(b"\n")
        self._pending = bytearray(rest)
        for line in lines:
            self._line(line)
        if len(rest) > _LINE_BYTES:
            self._pending.clear()
            self._skipping = True

    def finish(self) -> Tokens | None:
        """The exchange's tokens; None when the answer did not say, or said nonsense."""
        if self._streaming:
            self._line(bytes(self._pending))
        else:
            self._document(_decoded(bytes(self._pending)))
        self._pending.clear()
        return self.tokens

    @property
    def complete(self) -> bool:
        """Nothing more was to come: the provider said so, or is of the kind that does not say."""
        return self.ended or not self._dialect.says_when_done

    @property
    def tokens(self) -> Tokens | None:
        try:
            return self._dialect.tokens(self._usage) if self._usage else None
        except ValueError:
            return None

    def _line(self, line: bytes) -> None:
        if self._skipping:
            self._skipping = False
        elif line.startswith(b"data:"):
            data = line[5:].strip()
            self.ended = self.ended or data == b"[DONE]"
            self._document(_decoded(data))

    def _document(self, value: Any) -> None:
        for document in value if isinstance(value, list) else [value]:
            if not isinstance(document, dict):
                continue
            usage = self._dialect.usage(document) or {}
            self._usage.update({name: item for name, item in usage.items() if item is not None})
            self.ended = self.ended or self._dialect.ends(document)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
