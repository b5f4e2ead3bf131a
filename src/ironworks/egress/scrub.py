"""Keeps a host's secret from coming back to the sandbox in an answer that reflects it."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

_SHORTEST = 6


def _spellings(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield quote(secret, safe="").encode()
    yield json.dumps(secret)[1:-1].encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for shift in range(3):
        # The part of the base64 text that does not depend on its neighbours, at each of the three alignments.
        text = base64.b64encode(bytes(shift) + raw)[(0, 2, 3)[shift] :]
        text = text[: len(text) - (4 if (len(raw) + shift) % 3 else 0)]
        yield text
        yield text.translate(bytes.maketrans(b"+/", b"-_"))


class Scrubber:
    """Masks secrets in a stream with as many asterisks. Holds back only bytes that may begin a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # "Bearer KEY": the key alone is the secret too.
        words = {word for secret in secrets for word in (secret, secret.rpartition(" ")[2])}
        spellings = {text for word in words for text in _spellings(word) if len(text) >= _SHORTEST}
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._spellings)) or b"(?!)")
        self._longest = max(map(len, self._spellings), default=1)
        self._held = b""

    def whole(self, data: bytes) -> bytes:
        """All of a text at once."""
        return self._pattern.sub(lambda match: b"*" * len(match[0]), data)

    def feed(self, data: bytes) -> bytes:
        """The next piece of a stream; what it returns may be shorter than what went in."""
        clean = self.whole(self._held + data)
        cut = len(clean)
        for start in range(max(0, cut - self._longest + 1), cut):
            tail = clean[start:]
            if any(spelling.startswith(tail) for spelling in self._spellings):
                cut = start
                break
        self._held = clean[cut:]
        return clean[:cut]

    def rest(self) -> bytes:
        """What was held back, once the stream has ended."""
        held, self._held = self._held, b""
        return held
