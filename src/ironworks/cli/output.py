"""What people and programs read: plain lines, JSON, and nothing that a terminal would obey."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ironworks.core.excerpt import excerpt

INVISIBLE = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF)
CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
NEUTRAL = {code: f"\\x{code:02x}" for code in CONTROLS} | {code: f"\\u{code:04x}" for code in INVISIBLE}
NEUTRAL_IN_TEXT = {code: shown for code, shown in NEUTRAL.items() if code not in (0x09, 0x0A)} | {0x0D: ""}


def clean(text: str, *, lines: bool = False) -> str:
    """Text with every control, escape and direction character made visible; `lines` keeps new lines and tabs.

    Titles, logs and file names come from strangers: a terminal would run what is hidden in them.
    """
    return text.translate(NEUTRAL_IN_TEXT if lines else NEUTRAL)


def say(text: str = "") -> None:
    """A line, or several, for people."""
    print(clean(text, lines=True), flush=True)


def note(text: str) -> None:
    """The same, beside the output proper."""
    print(clean(text, lines=True), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One JSON document. ASCII, so that neither a terminal nor an encoding can spoil it."""
    print(json.dumps(value, indent=2), flush=True)


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Rows as aligned columns; the last one is not padded."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def closest(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or nothing when none of `known` is near."""
    import difflib  # costs more than all else that `status` does

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else ""


def duration(seconds: float) -> str:
    """`42s`, `3m12s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def dollars(amount_usd: float) -> str:
    return f"${amount_usd:.2f}" if amount_usd >= 0.01 or amount_usd == 0 else f"${amount_usd:.4f}"


def gist(text: str, width: int) -> str:
    """One line of at most `width` characters: how the text begins, and its last words."""
    return excerpt(" ".join(text.split()), width)


def short(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
