"""Decides which `ironworks.toml` counts for what, and makes it into Settings.

Three files can speak: the operator's own (`--config`, or the user's configuration), the repository's working
copy, and the one in the base commit. What runs on the host, spends money or loosens a limit comes from an
operator's file only; the repository's counts as one once `ironworks trust` has recorded its exact bytes.
What is built and how it is proved comes from the base commit.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ironworks.app.document import read_document
from ironworks.app.place import CONFIG_NAME, Place, config_home
from ironworks.app.secret import Secrets
from ironworks.app.shape import (
    Table,
    check_hidden,
    check_shared,
    explain,
    located,
    parse,
    shaped,
    with_stages,
)
from ironworks.app.trust import TrustStore
from ironworks.core.errors import ConfigError, MissingError, TrustError
from ironworks.core.settings import HOST_SECTIONS, Settings

HOST_KEYS = ("hidden_tests", "hidden_command")
"""Keys of [project] that name something of the host, and need the operator like a host section."""


class BaseFile(NamedTuple):
    """The base branch, its tip, and what `ironworks.toml` holds there (None: no such file)."""

    branch: str
    commit: str
    data: bytes | None


ReadBase = Callable[[str], BaseFile]
"""Given a branch name ("" = the one checked out), what its tip holds."""


class Overrides(NamedTuple):
    """What the command line says; stronger than every file."""

    agent: str | None = None
    parallel: int | None = None
    budget_usd: float | None = None


NO_OVERRIDES = Overrides()


class Loaded(NamedTuple):
    """Settings frozen for a run, where each section came from, and what the operator should know."""

    settings: Settings
    base: BaseFile
    origin: dict[str, str]
    warnings: tuple[str, ...]
    secrets: Secrets


class _Source(NamedTuple):
    label: str
    folder: Path
    table: Table


def load(
    place: Place,
    read_base: ReadBase,
    *,
    file: Path | None = None,
    overrides: Overrides = NO_OVERRIDES,
    trust: TrustStore | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """The settings that count for `place`. `settings.project.base` is always filled in.

    Raises ConfigError (what is wrong, where, and the closest right key) and TrustError (the repository's file
    asks for what only an operator may grant, and has not been trusted).
    """
    user = _read_user()
    named = _read_named(file) if file else None
    # A file named on the command line that says how to build leaves nothing for the repository's to say.
    own = None if named and "project" in named.table else _read_own(place)
    wishes = [source.table.get("project", {}).get("base") for source in (named, own and own[1]) if source]
    base = read_base(_branch(next((wish for wish in wishes if wish), "")))
    warnings: list[str] = []
    if named is None and own is None and base.data is not None:
        own = base.data, _source(f"{CONFIG_NAME} at {_at(base)}", place.root, base.data)
    operators = [source for source in (user, named) if source]
    if named is None and own is not None:
        _check_trust(place, *own, trust or TrustStore())
        operators.append(own[1])
    project = _project_source(named, own, base, place, warnings)
    settings, origin = _assemble(operators, project, overrides, base)
    check_hidden(settings, place.root)
    folders = dict.fromkeys(source.folder for source in (named, own[1] if own else None, user) if source)
    secrets = Secrets([folder / ".env" for folder in folders], environ)
    return Loaded(settings, base, origin, tuple(warnings), secrets)


def host_wishes(table: Table) -> list[str]:
    """What of a file needs an operator's consent, as dotted names."""
    keys = table.get("project", {})
    return [name for name in HOST_SECTIONS if name in table] + [
        f"project.{key}" for key in HOST_KEYS if keys.get(key)
    ]


def read_own(place: Place, read_base: ReadBase) -> tuple[bytes, Table, str]:
    """The repository's own file, as `ironworks trust` shows and records it: bytes, validated table, label."""
    own = _read_own(place)
    if own is None:
        base = read_base("")
        if base.data is None:
            raise MissingError(f"there is no {CONFIG_NAME} here", hint="ironworks init")
        own = base.data, _source(f"{CONFIG_NAME} at {_at(base)}", place.root, base.data)
    _validated(own[1].table, own[1].label)
    return own[0], own[1].table, own[1].label


def _read_user() -> _Source | None:
    path = config_home() / "config.toml"
    try:
        source = _source(str(path), path.parent, read_document(path))
    except MissingError:
        return None
    if "project" in source.table:
        raise ConfigError(f"{path}: [project] belongs into a repository's {CONFIG_NAME}, not into this file")
    return source


def _read_named(path: Path) -> _Source:
    try:
        return _source(str(path), path.resolve().parent, read_document(path))
    except MissingError as error:
        raise ConfigError(f"{path} does not exist", hint="check the path after --config") from error


def _read_own(place: Place) -> tuple[bytes, _Source] | None:
    if place.bare:
        return None
    try:
        data = read_document(place.config, follow=False)
    except MissingError:
        return None
    return data, _source(CONFIG_NAME, place.root, data)


def _source(label: str, folder: Path, data: bytes) -> _Source:
    return _Source(label, folder, located(shaped(parse(data, label), label), folder))


def _check_trust(place: Place, data: bytes, source: _Source, trust: TrustStore) -> None:
    wishes = host_wishes(source.table)
    if wishes and not trust.trusts(place.root, data):
        raise TrustError(
            f"{source.label} sets {', '.join(wishes)}, and only an operator may; it is not trusted as it is",
            hint="read it, then: ironworks trust",
        )


def _project_source(
    named: _Source | None,
    own: tuple[bytes, _Source] | None,
    base: BaseFile,
    place: Place,
    warnings: list[str],
) -> _Source:
    """Whose [project] counts: the file named on the command line's, the base commit's, the working copy's.

    A named file that says no more than where the hidden suite is adds that to what the repository says.
    """
    given = named.table.get("project", {}) if named else {}
    if _without_host(given):
        assert named is not None
        return named
    mine = own[1].table.get("project", {}) if own else {}
    hidden = _host_only(given if named else mine)
    if base.data is None:
        if own:
            warnings.append(
                f"{CONFIG_NAME} is not committed on {base.branch}: [project] is taken from the working copy"
            )
        source = own[1] if own else _Source("defaults", place.root, {})
        return source._replace(table={"project": _without_host(mine) | hidden})
    committed = _source(f"{CONFIG_NAME} at {_at(base)}", place.root, base.data)
    theirs = committed.table.get("project", {})
    if own and _without_host(mine) != _without_host(theirs):
        warnings.append(
            f"[project] differs between the working copy and {base.branch}: what {base.branch} holds counts"
        )
    return committed._replace(table={"project": _without_host(theirs) | hidden})


def _without_host(project: Table) -> Table:
    return {key: value for key, value in project.items() if key not in HOST_KEYS}


def _host_only(project: Table) -> Table:
    return {key: value for key, value in project.items() if key in HOST_KEYS}


def _assemble(
    operators: list[_Source], project: _Source, overrides: Overrides, base: BaseFile
) -> tuple[Settings, dict[str, str]]:
    """Later operators win key by key; the command line wins over all."""
    merged: Table = {}
    origin: dict[str, str] = {}
    for source in operators:
        _validated(source.table, source.label)
        for name in HOST_SECTIONS:
            if name in source.table:
                merged[name] = _over(merged.get(name, {}), source.table[name])
                origin[name] = source.label
    merged["project"] = project.table.get("project", {}) | {"base": base.branch}
    origin["project"] = project.label
    for section, key, value in (
        ("agent", "use", overrides.agent),
        ("limits", "parallel", overrides.parallel),
        ("budget", "run_usd", overrides.budget_usd),
    ):
        if value is not None:
            merged[section] = merged.get(section, {}) | {key: value}
            origin[section] = f"{origin.get(section, 'defaults')}, command line"
    settings = _validated(merged, project.label)
    for agent in (settings.agent, *settings.stages.values()):
        check_shared(agent.dir)
    return settings, origin


def _over(below: Table, above: Table) -> Table:
    """`above` laid over `below`, table by table."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _validated(table: Table, label: str) -> Settings:
    try:
        return Settings.model_validate_json(json.dumps(with_stages(table)), strict=True)
    except ValidationError as error:
        raise explain(error, table, label) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label}: {error}") from None


def _branch(name: Any) -> str:
    """A branch name that no git command can take for an option or a revision expression."""
    if not isinstance(name, str):
        raise ConfigError("project.base must be the name of a branch")
    bad = (
        name.startswith(("-", "/", ".")) or name.endswith(("/", ".", ".lock")) or ".." in name or "@{" in name
    )
    if bad or any(ord(character) <= 32 or character in "~^:?*[\\\x7f" for character in name):
        raise ConfigError(f"project.base: {name!r} is not the name of a branch")
    return name


def _at(base: BaseFile) -> str:
    return f"{base.branch} ({base.commit[:8]})"
