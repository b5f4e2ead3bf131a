"""Reads a backlog as people write it: which pieces of a Markdown file are issues, and what each one says."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ironworks.core.errors import ConfigError
from ironworks.core.models import Issue
from ironworks.forge.local.entry import (
    BOX,
    MATTER_LINES,
    Entry,
    Matter,
    identify,
    looks_like_matter,
    names_ours,
    plain_title,
    read_entry,
)

MAX_BYTES = 4 * 1024 * 1024

DONE = frozenset({"done", "completed", "closed", "finished", "shipped"})
"""Sections whose entries are closed."""
LABELS = DONE | {
    "backlog", "todo", "to do", "to-do", "tasks", "issues", "tickets", "stories", "ideas", "icebox", "bugs",
    "features", "improvements", "chores", "now", "next", "later", "soon", "doing", "open", "in progress",
    "high", "medium", "low", "high priority", "medium priority", "low priority",
}  # fmt: skip
"""Headings that are never an issue: what stands below them is a section of the backlog."""
PARTS = frozenset({
    "description", "context", "background", "motivation", "why", "what", "how", "summary", "details",
    "notes", "hints", "problem", "solution", "proposal", "design", "implementation", "goal", "goals",
    "non-goals", "requirements", "scope", "out of scope", "acceptance", "acceptance criteria", "criteria",
    "tasks", "subtasks", "definition of done", "steps", "steps to reproduce", "reproduction", "expected",
    "expected behavior", "expected behaviour", "actual", "actual behavior", "actual behaviour", "tests",
    "testing", "test plan", "example", "examples", "references", "links",
})  # fmt: skip
"""Sub-headings that are parts of one issue, so that the heading above them is the issue."""

MARKER = re.compile(r"( {0,3}(?:[-*+]|\d{1,9}[.)]))([ \t]*)")
RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}")
NEWLINE = re.compile(r"\r\n?|\n")
BLOCKS = MarkdownIt("commonmark").disable("inline")


@dataclass(slots=True)
class Listing:
    """A top-level list: where its items are, and whether one of them has a box."""

    items: list[tuple[int, int]]
    boxed: bool


@dataclass(slots=True)
class Section:
    """A heading and what stands below it, to `end`, sub-sections included. Line numbers count from 0."""

    level: int
    heading: str = ""
    start: int = 0
    below: int = 0
    end: int = 0
    lists: list[Listing] = field(default_factory=list)
    prose: bool = False
    children: list["Section"] = field(default_factory=list)
    matter: Matter | None = None

    @property
    def word(self) -> str:
        return re.sub(r"^[\W_]+|[\W_]+$", "", plain_title(self.heading).casefold())


def parse(path_label: str, data: bytes) -> list[Issue]:
    """The issues of a backlog file, closed ones included, in written order; its reference page has the rules.

    `path_label` names the file in errors and is part of every id: give the same on every machine. Raises
    ConfigError, naming the line, for what is not text or cannot be meant.
    """
    lines = _lines(path_label, data)
    entries = list(_Outline(path_label, lines).entries())
    ids = identify(path_label, entries)
    return [
        Issue(
            id=id,
            title=entry.title,
            body=entry.body,
            source=f"{path_label}:{entry.line}",
            wishes=entry.wishes.model_copy(
                update={"depends_on": _dependencies(path_label, entry, entries, ids)}
            ),
            closed=entry.closed,
        )
        for id, entry in zip(ids, entries, strict=True)
    ]


def _lines(label: str, data: bytes) -> list[str]:
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{label} has more than {MAX_BYTES} bytes", hint="is it really the backlog?")
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not UTF-8 text", hint="save the file as UTF-8") from error
    if "\0" in text:
        raise ConfigError(f"{label} is binary, not Markdown text")
    return NEWLINE.split(text)


def _dependencies(label: str, entry: Entry, entries: Sequence[Entry], ids: Sequence[str]) -> tuple[str, ...]:
    """Ids for what an entry names by id or by exact title. ConfigError for what is neither."""
    resolved = []
    for name in entry.wishes.depends_on:
        title = plain_title(name)
        titled = [id for id, other in zip(ids, entries, strict=True) if other.title == title]
        found = [name] if name in ids else titled
        if len(found) != 1:
            line = entry.matter.line_of("depends_on") if entry.matter else entry.line
            problem = (
                "is the title of several entries" if found else "is neither the id nor the title of an entry"
            )
            raise ConfigError(f"{label}:{line}: depends_on: {name!r} {problem}", hint="name one by its id")
        resolved += found
    return tuple(dict.fromkeys(resolved))


class _Outline:
    """The file's headings, lists and front matter, and from them the entries."""

    def __init__(self, label: str, lines: list[str]) -> None:
        self._label = label
        blocks = list(_dashed_blocks(lines))
        self._lines = list(lines)
        for start, end in blocks:
            self._lines[start : end + 1] = [""] * (end + 1 - start)
        self._root = _sections(self._lines)
        for start, end in blocks:
            self._assign(Matter(tuple(lines[start + 1 : end]), start + 2), end)

    def entries(self) -> Iterator[Entry]:
        title = self._document_title()
        others = any(section is not title for section in _below(self._root))
        yield from self._inside(self._root, title, plain=not others, closed=False)

    def _assign(self, matter: Matter, end: int) -> None:
        """Give a dashed block to the heading right above it, else to the one right below."""
        start = matter.line - 2
        for section in _below(self._root):
            if section.below <= start and self._blank(section.below, start):
                section.matter = matter
                return
            above = end < section.start and self._blank(end + 1, section.start)
            if above and section.matter is None and names_ours(matter.lines):
                section.matter = matter
                return
        # At the very top it may be about the document, and then is none of our business.
        if start or names_ours(matter.lines):
            raise self._homeless(matter)

    def _blank(self, start: int, end: int) -> bool:
        return not any(text.strip() for text in self._lines[start:end])

    def _homeless(self, matter: Matter) -> ConfigError:
        return ConfigError(
            f"{self._label}:{matter.line}: this front matter belongs to no entry",
            hint="put it right below an entry's heading; what holds for all goes into ironworks.toml",
        )

    def _document_title(self) -> Section | None:
        """The only heading of level 1, when it comes first and something else can be an entry."""
        headings = list(_below(self._root))
        if not headings or headings[0].level != 1 or sum(section.level == 1 for section in headings) != 1:
            return None
        return headings[0] if len(headings) > 1 or headings[0].lists or self._root.lists else None

    def _inside(
        self, section: Section, title: Section | None, *, plain: bool, closed: bool
    ) -> Iterator[Entry]:
        """The entries in a section that is none itself; if `plain`, lists without boxes hold entries too."""
        for listing in section.lists:
            if plain or listing.boxed:
                for start, end in listing.items:
                    yield from self._item(start, end, closed=closed)
        for child in section.children:
            grouping = child is title or child.word in LABELS
            if grouping and child.matter is not None:
                raise self._homeless(child.matter)
            done = closed or child.word in DONE
            if grouping or _only_groups(child):
                listed = plain if child is title else child.word in LABELS
                yield from self._inside(child, title, plain=listed, closed=done)
            else:
                yield from self._heading(child, closed=closed)

    def _heading(self, section: Section, *, closed: bool) -> Iterator[Entry]:
        for part in _below(section):
            if part.matter is not None:
                raise self._homeless(part.matter)
        lines = self._lines[section.below : section.end]
        while lines and (not lines[-1].strip() or RULE.fullmatch(lines[-1])):
            lines.pop()
        entry = read_entry(
            self._label,
            section.start + 1,
            section.heading,
            lines,
            below=section.below + 1,
            closed=closed,
            matter=section.matter,
        )
        if entry is not None:
            yield entry

    def _item(self, start: int, end: int, *, closed: bool) -> Iterator[Entry]:
        marker = MARKER.match(self._lines[start])
        assert marker is not None
        width = len(marker[0]) if len(marker[2]) <= 4 else len(marker[1]) + 1
        lines = [_dedent(text, width) for text in self._lines[start + 1 : end]]
        heading = self._lines[start][marker.end() :]
        entry = read_entry(self._label, start + 1, heading, lines, below=start + 2, closed=closed)
        if entry is not None:
            yield entry


def _only_groups(section: Section) -> bool:
    """Whether a heading holds nothing but checklists and headings of issues, and so is none itself."""
    if section.prose or section.matter is not None or any(not listing.boxed for listing in section.lists):
        return False
    if any(child.word in PARTS for child in section.children):
        return False
    return bool(section.lists or section.children)


def _below(section: Section) -> Iterator[Section]:
    """All sub-sections, in written order."""
    for child in section.children:
        yield child
        yield from _below(child)


def _tokens(lines: Sequence[str]) -> list[Token]:
    # A lone `---` is a rule or front matter here, never the underline of a heading.
    return BLOCKS.parse("\n".join("***" if text.rstrip() == "---" else text for text in lines))


def _dashed_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each YAML block between two `---`, outside of lists and code."""
    tokens = _tokens(lines)
    headings = {
        token.map[1] for token in tokens if token.type == "heading_open" and token.map and not token.level
    }
    rules = [
        token.map[0]
        for token in tokens
        if token.type == "hr" and not token.level and token.map and lines[token.map[0]].rstrip() == "---"
    ]
    last = -1
    for start, end in itertools.pairwise(rules):
        if start <= last or end - start > MATTER_LINES:
            continue
        inside = lines[start + 1 : end]
        above = start
        while above and not lines[above - 1].strip():
            above -= 1
        named = above == 0 or above in headings
        if names_ours(inside) or (named and looks_like_matter(inside)):
            last = end
            yield start, end


def _sections(lines: Sequence[str]) -> Section:
    """The tree of headings, with the lists and prose between them."""
    root = Section(0, end=len(lines))
    path = [root]
    tokens = _tokens(lines)
    for number, token in enumerate(tokens):
        if token.map is None:
            continue
        start, end = token.map
        if token.type == "heading_open" and not token.level:
            level = int(token.tag[1:])
            while path[-1].level >= level:
                path.pop().end = start
            section = Section(level, tokens[number + 1].content, start, end, len(lines))
            path[-1].children.append(section)
            path.append(section)
        elif token.type in {"bullet_list_open", "ordered_list_open"} and not token.level:
            path[-1].lists.append(Listing([], boxed=False))
        elif token.type == "list_item_open" and token.level == 1 and path[-1].lists:
            listing = path[-1].lists[-1]
            listing.items.append((start, end))
            marker = MARKER.match(lines[start])
            listing.boxed |= marker is not None and BOX.match(lines[start][marker.end() :]) is not None
        elif not token.level and not _is_silent(token):
            path[-1].prose = True
    return root


def _is_silent(token: Token) -> bool:
    """Rules, comments and the text of headings do not make a section say something itself."""
    return token.type == "hr" or (token.type == "html_block" and token.content.lstrip().startswith("<!--"))


def _dedent(text: str, width: int) -> str:
    """Take up to `width` columns of indentation away."""
    bare = text.lstrip(" \t")
    indent = len(text[: len(text) - len(bare)].expandtabs(4))
    return " " * max(0, indent - width) + bare
