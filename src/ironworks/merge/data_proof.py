"""Proof by value for data files: the merged document is the key-wise merge of both sides."""

import json
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from ironworks.merge.miss import Miss

_ABSENT = object()


def _load_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return document


LOADERS: dict[str, Callable[[str], Any]] = {".json": _load_json, ".toml": tomllib.loads}


def documents(suffix: str, *texts: str) -> list[Any] | None:
    """The sides as data; None where one of them is none, such as JSON with comments."""
    load = LOADERS.get(suffix)
    try:
        return [load(text) if text.strip() else _ABSENT for text in texts] if load else None
    except (ValueError, RecursionError):
        return None


def misses(suffix: str, base: Any, ours: Any, theirs: Any, result: str) -> Iterator[Miss]:
    """What differs from the key-wise merge of these documents."""
    try:
        merged = LOADERS[suffix](result)
    except (ValueError, RecursionError) as error:
        yield Miss(f"the result cannot be read: {error}")
        return
    yield from _compare((), base, ours, theirs, merged)


def _compare(where: tuple[str, ...], old: Any, mine: Any, other: Any, merged: Any) -> Iterator[Miss]:
    name = ".".join(where) or "the document"
    if mine == other or old in (mine, other):
        wanted = other if old == mine else mine
        if merged != wanted:
            yield Miss(f"{name} is not as the side that changed it has it")
    elif all(isinstance(value, dict) for value in (mine, other, merged)):
        before = old if isinstance(old, dict) else {}
        for key in sorted(mine.keys() | other.keys() | merged.keys()):
            values = (side.get(key, _ABSENT) for side in (before, mine, other, merged))
            yield from _compare((*where, key), *values)
    elif all(isinstance(value, list) for value in (mine, other, merged)):
        items = old if isinstance(old, list) else []
        kept = [item for item in items if item in mine and item in other]
        added = [item for item in (*mine, *other) if item not in items]
        if any(item not in merged for item in (*kept, *added)):
            yield Miss(f"{name} lost an item")
    else:
        gone = merged is _ABSENT and _ABSENT not in (mine, other)
        yield Miss(f"both sides changed {name}", fatal=gone)
