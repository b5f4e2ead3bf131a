"""Writes docs/reference anew from the code: the schemas of the handoffs, and the help of every command."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

import ironworks.cli
from ironworks.core.handoffs import HANDOFFS, schema

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
INTRODUCTION = """\
# Commands

Written by `make docs`; do not edit.

Results go to standard output; progress, warnings and errors to standard error. With `--json` standard output
holds one JSON document (`events`: one object a line), for an error too:
`{"error": {"code", "message", "hint"}}`.

| exit code | meaning |
| --- | --- |
| 0 | good: for `run`, every issue has landed, or was asked, rejected or skipped |
| 1 | not all good: something is parked, evicted or unfinished; a verdict is negative; a merge is refused |
| 2 | usage or configuration; `verify`: unverifiable |
| 3 | the factory itself failed |
| 130 | interrupted before there was anything to stop |
"""


def write_schemas(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in HANDOFFS:
        text = json.dumps(schema(name), indent=2, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", "utf-8")


def write_commands(page: Path, command: click.Command) -> None:
    settings = command.context_settings
    with click.Context(command, info_name="ironworks", terminal_width=100, **settings) as context:
        sections = [f"## {path}\n\n```\n{text}\n```\n" for path, text in helps(context)]
    page.write_text(INTRODUCTION + "\n" + "\n".join(sections), "utf-8")


def helps(context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, context.get_help()
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command and not command.hidden:
                with click.Context(command, info_name=name, parent=context) as inner:
                    yield from helps(inner)


def main() -> None:
    write_schemas(REFERENCE / "schemas")
    write_commands(REFERENCE / "cli.md", ironworks.cli.cli)


if __name__ == "__main__":
    main()
