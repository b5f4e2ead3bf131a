"""One backlog entry's own text: its title, the wishes written at its head, and its stable id."""

import difflib
import hashlib
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markdown_it import MarkdownIt
from pydantic import ValidationError

from ironworks.core.errors import ConfigError
from ironworks.core.models import IssueWishes

TITLE_LENGTH = 200
SLUG_LENGTH = 48
HASH_LENGTH = 8
MATTER_LINES = 60
CLOSE_ENOUGH = 0.6

KEYS = tuple(IssueWishes.model_fields)
LISTS = ("scope", "depends_on")
BOX = re.compile(r"\A\[([ xX])\](?:\s+|\Z)")
ANY_BOX = re.compile(r"\[[ xX]\]")
NUMBER = re.compile(r"\A\d{1,9}[.)]\s+")
KEY_LINE = re.compile(r"([a-z][a-z_-]*):(?:\s|\Z)")
FENCE = re.compile(r"\A(`{3,}|~{3,})\s*ya?ml\s*\Z")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
INLINE = MarkdownIt("commonmark")


@dataclass(frozen=True, slots=True)
class Matter:
    """Lines of YAML at the head of an entry. `line` is the number of the first, counted from 1."""

    lines: tuple[str, ...]
    line: int

    def line_of(self, key: str) -> int:
        return self.line + next((n for n, text in enumerate(self.lines) if text.startswith(f"{key}:")), 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the backlog that is an issue. `line` counts from 1; `body` is everything below the title."""

    title: str
    closed: bool
    line: int
    wishes: IssueWishes
    body: str
    matter: Matter | None


def read_entry(
    label: str,
    line: int,
    heading: str,
    lines: Sequence[str],
    *,
    below: int,
    closed: bool,
    matter: Matter | None = None,
) -> Entry | None:
    """Make an entry of a title in Markdown and the lines below it, of which the first has the number `below`.

    None when there is nothing in it. ConfigError, naming the line, for wishes that cannot be used.
    """
    heading = heading.strip()
    rest = list(lines)
    if matter is None:
        matter, rest = split_matter(rest, below)
    title = plain_title(heading)
    if not title:
        heading, rest = _first_line(rest)
        title = plain_title(heading)
    if not title:
        return None
    if len(heading) > TITLE_LENGTH:
        rest = [heading, "", *rest]
    box = BOX.match(NUMBER.sub("", heading))
    done = closed or (box is not None and box[1] != " ")
    return Entry(title, done, line, read_wishes(label, matter), "\n".join(rest).strip("\n").rstrip(), matter)


def plain_title(heading: str) -> str:
    """A title without box, number, emphasis, links and control characters; equal for NFC and NFD."""
    text = NUMBER.sub("", BOX.sub("", NUMBER.sub("", heading.strip())))[: 4 * TITLE_LENGTH]
    children = [child for token in INLINE.parseInline(text) for child in token.children or ()]
    words = "".join(
        " " if child.type.endswith("break") else child.content
        for child in children
        if child.type != "html_inline"
    )
    words = unicodedata.normalize("NFC", CONTROL.sub(" ", words))
    return " ".join(words.split())[:TITLE_LENGTH].rstrip()


def _first_line(lines: Sequence[str]) -> tuple[str, list[str]]:
    filled = next((n for n, text in enumerate(lines) if text.strip()), None)
    return ("", []) if filled is None else (lines[filled].strip(), list(lines[filled + 1 :]))


def split_matter(lines: Sequence[str], below: int) -> tuple[Matter | None, list[str]]:
    """Front matter at the head of an entry's lines, and the lines without it.

    It is a block between two `---`, a fenced block marked `yaml`, or bare `key: value` lines. The latter two
    count only when one of their keys is ours, or nearly: else they are the entry's own text.
    """
    start = next((n for n, text in enumerate(lines) if text.strip()), len(lines))
    head = [text.rstrip() for text in lines[start : start + MATTER_LINES]]
    fence = FENCE.match(head[0]) if head else None
    if head and head[0] == "---":
        end = next((n for n, text in enumerate(head[1:], 1) if text == "---"), 0)
        found, after = head[1:end], end + 1
        counts = looks_like_matter(found)
    elif fence is not None:
        end = next((n for n, text in enumerate(head[1:], 1) if text == fence[1]), 0)
        found, after = head[1:end], end + 1
        counts = names_ours(found)
    else:
        end = next((n for n, text in enumerate(head) if not KEY_LINE.match(text)), len(head))
        found, after = head[:end], end
        counts = names_ours(found)
    if not counts:
        return None, list(lines)
    first = start if after == end else start + 1
    return Matter(tuple(found), below + first), list(lines[start + after :])


def looks_like_matter(lines: Sequence[str]) -> bool:
    """Whether one of these lines sets a key."""
    return any(KEY_LINE.match(text) for text in lines)


def names_ours(lines: Sequence[str]) -> bool:
    """Whether one of these lines sets a key of ours, or one spelt nearly like it."""
    keys = [match[1] for text in lines if (match := KEY_LINE.match(text))]
    return any(key in KEYS or _suggestion(key) for key in keys)


def _suggestion(key: str) -> str:
    return next(iter(difflib.get_close_matches(key, KEYS, n=1, cutoff=CLOSE_ENOUGH)), "")


def read_wishes(label: str, matter: Matter | None) -> IssueWishes:
    """What the front matter asks for. ConfigError that names the line, and the key that was meant."""
    if matter is None:
        return IssueWishes()
    values = _mapping(label, matter)
    for key in values:
        if key not in KEYS:
            near = _suggestion(key)
            raise ConfigError(
                f"{label}:{matter.line_of(key)}: unknown key {key!r}"
                + (f"; did you mean {near!r}?" if near else ""),
                hint="an entry may set " + ", ".join(KEYS),
            )
    for key in LISTS:
        if isinstance(text := values.get(key), str):
            values[key] = [part.strip() for part in text.split(",") if part.strip()]
    try:
        wishes = IssueWishes.model_validate(values)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        key = str(first["loc"][0])
        raise ConfigError(f"{label}:{matter.line_of(key)}: {key}: {first['msg']}") from error
    if wishes.budget_usd is not None and not math.isfinite(wishes.budget_usd):
        raise ConfigError(f"{label}:{matter.line_of('budget_usd')}: budget_usd: must be a finite number")
    return wishes


def _mapping(label: str, matter: Matter) -> dict[str, Any]:
    """YAML whose scalars all stay text, so that `yes` can be a name; keys without a value are left out."""
    try:
        loaded = yaml.load("\n".join(matter.lines), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = matter.line + (mark.line if mark else 0)
        problem = getattr(error, "problem", None) or "it is nested too deeply"
        raise ConfigError(
            f"{label}:{line}: front matter is not valid YAML: {problem}",
            hint='quote a value that starts with a special character, as in scope: "**/*.py"',
        ) from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{label}:{matter.line}: front matter must be `key: value` lines")
    return {str(key): value for key, value in loaded.items() if value not in ("", None)}


def identify(label: str, entries: Sequence[Entry]) -> list[str]:
    """An id for each entry, from the backlog's path and the entry's text alone: never from its position.

    The title decides. Of several entries with one title, the one whose text has the lowest hash gets the
    title's id and the others one of their own text; the very same text again is counted.
    """
    groups: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for number, entry in enumerate(entries):
        text = ANY_BOX.sub("[ ]", " ".join(unicodedata.normalize("NFC", entry.body).split()))
        groups[_name(entry.title, label)].append((_digest(label, entry.title, text), number))
    ids = [""] * len(entries)
    taken = set(groups)
    for plain, members in groups.items():
        (_, first), *others = sorted(members)
        ids[first] = plain
        for digest, number in others:
            wanted = f"{_slug(entries[number].title)}-{digest[:HASH_LENGTH]}"
            ids[number] = _untaken(wanted, taken)
    return ids


def _untaken(wanted: str, taken: set[str]) -> str:
    id, count = wanted, 1
    while id in taken:
        count += 1
        id = f"{wanted}-{count}"
    taken.add(id)
    return id


def _name(title: str, label: str) -> str:
    return f"{_slug(title)}-{_digest(label, title)[:HASH_LENGTH]}"


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode("ascii").lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_LENGTH].strip("-") or "issue"


def _digest(label: str, *texts: str) -> str:
    parts = (unicodedata.normalize("NFC", label), *texts)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
