"""Links in memory: shorten an address, follow its code."""

import time
from itertools import count
from typing import NamedTuple

from tiny_links.codes import encode


class Link(NamedTuple):
    """Where a code leads, and since when, in milliseconds since 1970."""

    code: str
    url: str
    made_ms: int


def now_ms():
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Links:
    """All links of one shortener; `clock` tells the time in milliseconds."""

    def __init__(self, clock=now_ms):
        self._clock = clock
        self._numbers = count()
        self._links = {}
        self._clicks = {}

    def shorten(self, url):
        """Make a link to `url`; its code."""
        code = encode(next(self._numbers))
        self._links[code] = Link(code, url, self._clock())
        return code

    def follow(self, code):
        """Where `code` leads, counted as a click; None when nobody made it."""
        self._clicks[code] = self._clicks.get(code, 0) + 1
        link = self._links.get(code)
        return link.url if link else None

    def clicks(self, code):
        """How often `code` was followed."""
        return self._clicks.get(code, 0)

    def __len__(self):
        return len(self._links)
