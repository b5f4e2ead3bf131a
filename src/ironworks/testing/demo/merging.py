"""A merge computed from both sides: what each changed is in the result, token by token where they meet."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Protocol

TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


class Edit(NamedTuple):
    """Items `start` to `end` of the base became `new`."""

    start: int
    end: int
    new: list[str]


class Rewrite(Protocol):
    def __call__(self, base: list[str], ours: list[str], theirs: list[str], /) -> Iterator[str]: ...


def merged(base: str, ours: str, theirs: str) -> str:
    """Both changes of `base`. Ours comes first where both add at one place, and wins where both rewrite."""
    lines = [text.splitlines(keepends=True) for text in (base, ours, theirs)]
    return "".join(_merged(lines, _by_token))


def _by_token(*sides: list[str]) -> Iterator[str]:
    tokens = [TOKEN.findall("".join(side)) for side in sides]
    return _merged(tokens, lambda base, ours, theirs: iter(ours))


def _merged(sides: Sequence[list[str]], rewrite: Rewrite) -> Iterator[str]:
    """The base with both sides' edits; `rewrite` decides where both rewrote the same items."""
    base, ours, theirs = sides
    done = 0
    for mine, other in _groups(_edits(base, ours), _edits(base, theirs)):
        start = min(edit.start for edit in (*mine, *other))
        end = max(edit.end for edit in (*mine, *other))
        first, second = _applied(base, start, end, mine), _applied(base, start, end, other)
        yield from base[done:start]
        if not mine or not other or first == second:
            yield from first if mine else second
        elif start == end:
            yield from (*first, *second)
        else:
            yield from rewrite(base[start:end], first, second)
        done = end
    yield from base[done:]


def _edits(base: list[str], side: list[str]) -> list[Edit]:
    codes = SequenceMatcher(None, base, side, autojunk=False).get_opcodes()
    return [Edit(start, end, side[first:last]) for tag, start, end, first, last in codes if tag != "equal"]


def _groups(ours: list[Edit], theirs: list[Edit]) -> Iterator[tuple[list[Edit], list[Edit]]]:
    """Edits that rewrite a common item, or add at one place, together; every other one alone."""
    waiting = sorted([*((edit, True) for edit in ours), *((edit, False) for edit in theirs)])
    while waiting:
        group = [waiting.pop(0)]
        start, end, _ = group[0][0]
        while waiting and (waiting[0][0].start < end or waiting[0][0][:2] == (start, end)):
            group.append(waiting.pop(0))
            end = max(end, group[-1][0].end)
        yield [edit for edit, mine in group if mine], [edit for edit, mine in group if not mine]


def _applied(base: list[str], start: int, end: int, edits: list[Edit]) -> list[str]:
    result: list[str] = []
    for edit in edits:
        result += [*base[start : edit.start], *edit.new]
        start = edit.end
    return [*result, *base[start:end]]
