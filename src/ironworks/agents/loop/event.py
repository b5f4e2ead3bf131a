"""What the loop tells the outside, and how it ends early."""

from __future__ import annotations

import json
from typing import Any

MAX_SHOWN = 2_000

Message = dict[str, Any]


class Stop(Exception):
    """The exchange ends without a handoff."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class Broken(Exception):
    """A try that may be repeated after `after_s`; `midway` if an answer had begun."""

    def __init__(self, reason: str, *, after_s: float | None = None, midway: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.midway = midway


def emit(kind: str, **data: object) -> None:
    print(json.dumps({"type": kind, **data}), flush=True)


def clip(text: str, limit: int) -> str:
    """The beginning and, mostly, the end: errors stand at the end."""
    if len(text) <= limit:
        return text
    head = limit // 4
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[head - limit :]}"
