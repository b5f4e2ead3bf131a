"""Proof by lines: what a side added, where the other changed nothing, is there; what both kept is there."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import takewhile
from typing import NamedTuple

from ironworks.merge.miss import Miss

EXACT_LINES = 2000
"""Above this many changed lines the comparison takes the usual short cut for frequent lines."""
MOST_LINES = 20_000
"""Above this many it would take minutes."""
MOST = 20
_HEADING = re.compile(r"^(#{1,6}) +(.*?)[ #]*$")


class Edit(NamedTuple):
    """Lines `start` to `end` of the base became `added`."""

    start: int
    end: int
    added: list[str]

    def rivals(self, others: list["Edit"]) -> list["Edit"]:
        """Those of the other side's edits that rewrite a line of this one, or lie inside or around it.

        Two additions at one place are no rivals: both have room. Edits are in order.
        """
        first = bisect_right(others, self.start, key=lambda other: other.end)
        last = takewhile(lambda n: others[n].start < self.end, range(first, len(others)))
        return [others[n] for n in last]


def misses(base: str, ours: str, theirs: str, result: str, *, sections: bool = False) -> Iterator[Miss]:
    """Lines that are lost; with `sections` also Markdown lines that ended up under another heading."""
    versions = [_lines(text) for text in (base, ours, theirs)]
    mine, other = _edits(versions[0], versions[1]), _edits(versions[0], versions[2])
    if mine is None or other is None:
        yield Miss(f"more than {MOST_LINES} lines changed, too many to be proved")
        return
    gone = {n for edit in (*mine, *other) for n in range(edit.start, edit.end)}
    needed = Counter(line for n, line in enumerate(versions[0]) if n not in gone)
    added = [_added(mine, other), _added(other, mine)]
    needed += added[0] | added[1]
    have = Counter(_lines(result))
    lost = [line for line, count in needed.items() if have[line] < count and re.search(r"\w", line)]
    for line in lost[:MOST]:
        yield Miss(f"a line is lost: {line[:200]}")
    yield from _contested(versions[0], mine, other, have)
    if sections:
        places = _places(result)
        for side, lines in zip((ours, theirs), added, strict=True):
            yield from _misplaced(_places(side), lines, places)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _edits(old: list[str], new: list[str]) -> list[Edit] | None:
    """How `old` became `new`; None when that is too much."""
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    size = max(len(before), len(after))
    if size > MOST_LINES:
        return None
    matcher = SequenceMatcher(None, before, after, autojunk=size > EXACT_LINES)
    codes = (code for code in matcher.get_opcodes() if code[0] != "equal")
    return [Edit(head + start, head + end, after[first:last]) for _, start, end, first, last in codes]


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def _added(edits: list[Edit], others: list[Edit]) -> Counter[str]:
    return Counter(line for edit in edits if not edit.rivals(others) for line in edit.added)


def _contested(old: list[str], mine: list[Edit], other: list[Edit], have: Counter[str]) -> Iterator[Miss]:
    """Where both rewrote the same lines there must be something of what they wrote; of both is better."""
    words = _words(have)
    for edit in mine:
        for rival in edit.rivals(other):
            sides = [_words(one.added) - _words(old[one.start : one.end]) for one in (edit, rival)]
            left = [not side or bool(side & words) for side in sides]
            if not all(left):
                line = " ".join((*edit.added, *rival.added))[:200]
                yield Miss(f"what was written is lost: {line}", fatal=not any(left))


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in re.findall(r"\w+", line)}


def _places(text: str) -> dict[str, set[tuple[str, ...]]]:
    """For each line the headings it stands under."""
    headings: list[tuple[int, str]] = []
    places: dict[str, set[tuple[str, ...]]] = {}
    for line in _lines(text):
        if found := _HEADING.match(line):
            headings = [(level, title) for level, title in headings if level < len(found[1])]
            headings.append((len(found[1]), found[2]))
        else:
            places.setdefault(line, set()).add(tuple(title for _, title in headings))
    return places


def _misplaced(
    side: dict[str, set[tuple[str, ...]]], added: Counter[str], result: dict[str, set[tuple[str, ...]]]
) -> Iterator[Miss]:
    for line in added:
        wanted, found = side.get(line, set()), result.get(line, set())
        if re.search(r"\w", line) and found and wanted and not wanted & found:
            yield Miss(f"a line is under another heading: {line[:200]}")
