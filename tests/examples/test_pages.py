"""What the pages for beginners tell people to type exists, and their links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ironworks.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "README.md",
        "docs/README.md",
        "docs/start/*.md",
        "examples/README.md",
        "examples/*/README.md",
    )
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def commands(text: str) -> Iterator[list[str]]:
    """The words after `ironworks` wherever it is typed: in shell blocks, and between backticks."""
    typed = [line for kind, block in FENCE.findall(text) if kind == "sh" for line in block.splitlines()]
    typed += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in typed:
        words = shlex.split(line, comments=True)
        if len(words) > 1 and words[0] == "ironworks":
            yield words[1:]


def problem(words: list[str]) -> str:
    """Why the command line does not understand these words; empty if it does."""
    command: click.Command = cli
    settings = cli.context_settings  # A command keeps the help option of the first context that asks for it.
    context = click.Context(cli, info_name="ironworks", **settings)
    try:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name, found, words = command.resolve_command(context, words)
            assert found
            command, context = found, click.Context(found, info_name=name, parent=context)
        if words != ["--help"]:
            command.make_context(context.info_name, list(words), parent=context.parent)
    except click.ClickException as error:
        return error.format_message()
    return ""


@pytest.mark.spec("PJ-9")
@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_that_a_page_names_is_understood(page: str) -> None:
    found = list(commands(text_of(page)))
    assert [f"{shlex.join(words)}: {why}" for words in found if (why := problem(words))] == []


@pytest.mark.spec("PJ-9")
@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_of_a_page_leads_somewhere(page: str) -> None:
    assert list(dead_links(page)) == []


def dead_links(page: str) -> Iterator[str]:
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def anchors(page: Path) -> set[str]:
    """What a forge makes of a page's headings."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("line", ["nosuch", "run --nosuch", "pr nosuch", "run --budget-usd lots"])
def test_a_command_line_that_does_not_exist_is_noticed(line: str) -> None:
    [words] = commands(f"```sh\nironworks {line}\n```\n")
    assert problem(words)


def test_the_pages_for_beginners_are_there() -> None:
    assert {"README.md", "docs/start/your-repository.md", "docs/start/merging.md"} <= set(PAGES)
    assert any(list(commands(text_of(page))) for page in PAGES)
