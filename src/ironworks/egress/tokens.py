"""What a model exchange consumed, in tokens, whichever provider said so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST = 10**9


@dataclass(frozen=True)
class Tokens:
    """`input` counts everything read, cached tokens included; `cache_write_1h` is a part of `cache_write`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0


def count(usage: Mapping[str, Any], name: str) -> int:
    """A token count from a provider's answer; ValueError when it is none, so that nobody charges nonsense."""
    value = usage.get(name)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{name} is not a token count")
    return value


def part(usage: Any, name: str) -> Mapping[str, Any]:
    """A nested object of an answer, or an empty one."""
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, Mapping) else {}
