"""The grammar of `ironworks.toml`: short forms made long, paths made absolute, mistakes explained."""

import difflib
import shlex
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ironworks.core.errors import ConfigError
from ironworks.core.models import AgentStage
from ironworks.core.settings import HOST_SECTIONS, AgentSettings, Settings
from ironworks.sandbox.local.view import shown

Table = dict[str, Any]
STAGES: tuple[str, ...] = get_args(AgentStage)
_LISTS = {
    "project": ("prepare", "scope", "protected"),
    "agent": ("context",),
    "network": ("allow", "prepare"),
}


def parse(data: bytes, label: str) -> Table:
    """TOML bytes as plain data; ConfigError with the line."""
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{label}: line {line}: not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{label}: {str(error)[:200] or 'nested too deeply'}") from None


def shaped(table: Table, label: str) -> Table:
    """The same with every short form made long. Unknown sections, and what is no table, are refused."""
    known = ("project", *HOST_SECTIONS)
    for name, section in table.items():
        if name not in known:
            raise ConfigError(f"{label}: unknown section [{name}]", hint=_closest(name, known))
        if not isinstance(section, dict):
            raise ConfigError(f"{label}: {name} must be a table: write [{name}]")
    result = {name: dict(section) for name, section in table.items()}
    for name, keys in _LISTS.items():
        for key in keys:
            if isinstance(result.get(name, {}).get(key), str):
                result[name][key] = [result[name][key]]
    if "test" in result.get("project", {}):
        result["project"]["test"] = _suites(result["project"]["test"], label)
    for agent in _agents(result):
        if isinstance(agent.get("command"), str):
            agent["command"] = _words(agent["command"], label)
    return result


def located(table: Table, folder: Path) -> Table:
    """The same with paths of the host made absolute: they are relative to the file that names them."""
    for agent in _agents(table):
        if isinstance(agent.get("dir"), str) and agent["dir"]:
            agent["dir"] = str((folder / Path(agent["dir"]).expanduser()).absolute())
    hidden = table.get("project", {}).get("hidden_tests")
    if isinstance(hidden, str) and hidden:
        table["project"]["hidden_tests"] = str((folder / Path(hidden).expanduser()).absolute())
    for provider in _tables(table.get("providers")):
        _locate_secrets(provider, ("key",), folder)
    for headers in _tables(table.get("network", {}).get("headers")):
        _locate_secrets(headers, tuple(headers), folder)
    _check_inside(table)
    return table


def with_stages(table: Table) -> Table:
    """The shape of Settings: `[agent.review]` and its like become whole agents under `stages`."""
    agent = table.get("agent", {})
    common = {key: value for key, value in agent.items() if key not in STAGES}
    stages = {stage: common | agent[stage] for stage in STAGES if isinstance(agent.get(stage), dict)}
    return {**table, "agent": common, "stages": stages}


def explain(error: ValidationError, table: Table, label: str) -> ConfigError:
    """One thing wrong, by its name in the file. Values are not repeated: one may be a secret."""
    # A misspelt key comes before the missing one that it causes.
    wrong = error.errors(include_url=False, include_input=False)
    first = min(wrong, key=lambda details: details["type"] != "extra_forbidden")
    path = tuple(first["loc"])
    if path[:1] == ("stages",):
        path = ("agent", *path[1:])
    name = ".".join(str(part) for part in path) or "the file"
    if first["type"] == "extra_forbidden":
        return ConfigError(f"{label}: unknown key {name}", hint=_closest(str(path[-1]), _keys_beside(path)))
    return ConfigError(f"{label}: {name}: {_reason(first)}")


def _reason(details: ErrorDetails) -> str:
    if details["type"] == "string_pattern_mismatch":
        pattern = str(details.get("ctx", {}).get("pattern"))
        if pattern.startswith("^(env:"):
            return "must be env:NAME or file:PATH, never the secret itself"
        if "issue" in pattern:
            return "must contain {issue} once, and no space or other brace"
    return details["msg"].removeprefix("Value error, ").removeprefix("Input ").replace("should be", "must be")


def _keys_beside(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that could stand where `path` ends."""
    model: Any = Settings
    for part in path[:-1]:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            break
        if model is AgentSettings and part in STAGES:
            continue
        field = model.model_fields.get(str(part))
        model = _model_in(field.annotation) if field else model
    keys = tuple(getattr(model, "model_fields", {}))
    return keys + STAGES if model is AgentSettings and len(path) == 2 else keys


def _model_in(annotation: Any) -> Any:
    """The model a field holds, be it alone, in a tuple or as a table's values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _closest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are: {', '.join(known)}"


def _suites(test: Any, label: str) -> Any:
    if test == "":
        return []
    suites = [{"command": test}] if isinstance(test, str) else [test] if isinstance(test, dict) else test
    if not isinstance(suites, list) or not all(isinstance(suite, dict) for suite in suites):
        raise ConfigError(f"{label}: project.test must be a command, or [[project.test]] tables")
    if len(suites) == 1:
        return suites
    return [{"name": f"tests-{number}"} | suite for number, suite in enumerate(suites, 1)]


def _words(command: str, label: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{label}: agent.command: {error}") from None


def _agents(table: Table) -> list[Table]:
    """[agent] and its stages."""
    agent = table.get("agent", {})
    for stage in STAGES:
        if isinstance(agent.get(stage), dict):
            agent[stage] = dict(agent[stage])
    return [agent, *(agent[stage] for stage in STAGES if isinstance(agent.get(stage), dict))]


def _tables(value: Any) -> list[Table]:
    return [entry for entry in value.values() if isinstance(entry, dict)] if isinstance(value, dict) else []


def _locate_secrets(table: Table, keys: tuple[str, ...], folder: Path) -> None:
    for key in keys:
        value = table.get(key)
        if isinstance(value, str) and value.startswith("file:"):
            table[key] = f"file:{(folder / Path(value.removeprefix('file:')).expanduser()).absolute()}"


def check_shared(folder: str) -> None:
    """Refuse a host folder for agents that is none, or that holds a home and its credentials."""
    if not folder:
        return
    chosen = Path(folder).resolve()
    if Path("~").expanduser().resolve().is_relative_to(chosen):
        raise ConfigError(f"agent.dir: {folder!r} holds your home folder, which no sandbox may see")
    if not chosen.is_dir():
        raise ConfigError(f"agent.dir: {folder!r} is no folder")


def check_hidden(settings: Settings, root: Path) -> None:
    """Refuse a hidden suite in a place that agents can read: the repository, their folders, the system's."""
    if not settings.project.hidden_tests:
        return
    folder = Path(settings.project.hidden_tests).resolve()
    agents = (settings.agent, *settings.stages.values())
    given = [Path(agent.dir).resolve() for agent in agents if agent.dir]
    seen = [root.resolve(), *given, *(place.resolve() for place in shown())]
    for place in seen:
        if folder.is_relative_to(place) or (place in given and place.is_relative_to(folder)):
            raise ConfigError(
                f"project.hidden_tests: agents can read {place}, so {folder} is not hidden",
                hint="keep it in a folder of its own, outside of the repository",
            )


def _check_inside(table: Table) -> None:
    """Paths that are meant inside the repository must stay there."""
    tests = table.get("project", {}).get("test", [])
    named = [("project.test.dir", suite.get("dir")) for suite in tests]
    named += [("agent.context", path) for agent in _agents(table) for path in agent.get("context", ()) or ()]
    for key, path in named:
        if isinstance(path, str) and (
            path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path
        ):
            raise ConfigError(f"{key}: {path!r} leaves the repository")
