"""Writes docs/reference anew from the code: the schemas of the handoffs, and the help of every command."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
from pydantic import BaseModel

import ironworks.cli
from ironworks.core import handoffs

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def write_schemas(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for model in published(handoffs):
        schema = json.dumps(model.model_json_schema(), indent=2, ensure_ascii=False)
        (folder / f"{model.__name__}.json").write_text(schema + "\n", "utf-8")


def published(module: object) -> Iterator[type[BaseModel]]:
    for value in vars(module).values():
        own = getattr(value, "__module__", "") == getattr(module, "__name__", None)
        if own and isinstance(value, type) and issubclass(value, BaseModel):
            yield value


def write_commands(page: Path, command: click.Command) -> None:
    with click.Context(command, info_name="ironworks", max_content_width=100) as context:
        sections = [f"## {path}\n\n```\n{text}\n```\n" for path, text in helps(context)]
    page.write_text("# Commands\n\n" + "\n".join(sections), "utf-8")


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
    command = getattr(ironworks.cli, "main", None)
    if isinstance(command, click.Command):
        write_commands(REFERENCE / "commands.md", command)


if __name__ == "__main__":
    main()
