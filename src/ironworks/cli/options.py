"""Options that many verbs share, and what they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ironworks.app.place import Place, find_place, options_for
from ironworks.core.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def place_options(function: Function) -> Function:
    """`--repository` and `--state`, as the parameters `repository` and `state`."""
    for option in (
        click.option("--state", type=PATH, metavar="DIR", help="Where the factory keeps its state."),
        click.option(
            "--repository",
            type=PATH,
            metavar="DIR",
            help="The git repository; by default the one you are in.",
        ),
    ):
        function = option(function)
    return function


def json_option(function: Function) -> Function:
    """`--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)


def config_option(function: Function) -> Function:
    """`--config`, as the parameter `config`."""
    return click.option("--config", type=PATH, metavar="FILE", help="Your own configuration file.")(function)


def place_of(repository: Path | None, state: Path | None, backlog: Path | None = None) -> Place:
    """The place that the options name: the repository given, else the one we are in, else the backlog's."""
    try:
        return find_place(repository or Path.cwd(), state)
    except ConfigError:
        if repository is not None or backlog is None:
            raise
        return find_place(backlog.parent, state)


def suggestion(command: str, place: Place) -> str:
    """`command` so that it succeeds when typed where we are."""
    return command + options_for(place) if command.startswith("ironworks ") else command
