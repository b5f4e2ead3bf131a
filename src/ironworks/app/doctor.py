"""Finds out what a machine lacks to run a factory on a repository, by trying each thing."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ironworks.agents.program import programs_folder
from ironworks.agents.registry import PROGRAMS, check_agent
from ironworks.app.backend import make_backend
from ironworks.app.base import base_reader
from ironworks.app.configuration import Loaded, load
from ironworks.app.place import Place, make_state
from ironworks.app.provider import asked_providers, missing_key
from ironworks.core.errors import ConfigError, IronworksError
from ironworks.core.settings import SandboxSettings

OLDEST_GIT = (2, 38)
"""`git merge-tree --write-tree` came with it."""
FREE_BYTES = 2_000_000_000


class Check(NamedTuple):
    """One thing that must hold. `fix` is what to type or change when it does not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def examine(place: Place, config: Path | None = None) -> list[Check]:
    """Every check, in the order in which to repair. Runs programs for a moment; makes the state directory."""
    state = list(_state(place))
    return [
        _python(),
        _git(),
        _sqlite(),
        *state,
        *_sandbox(place, state, config),
        *_configuration(place, config),
    ]


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), f"Python {found}", "install Python 3.11 or newer")


def _git() -> Check:
    fix = "install git 2.38 or newer"
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("git", False, str(error), fix)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    new = found is not None and (int(found[1]), int(found[2])) >= OLDEST_GIT
    return Check("git", new, done.stdout.strip(), fix)


def _sqlite() -> Check:
    return Check(
        "sqlite", sqlite3.sqlite_version_info >= (3, 35), f"SQLite {sqlite3.sqlite_version}", "update Python"
    )


def _state(place: Place) -> Iterator[Check]:
    try:
        make_state(place)
    except IronworksError as error:
        yield Check("state", False, error.message, error.hint)
        return
    writable = os.access(place.state, os.W_OK)
    yield Check("state", writable, str(place.state), "name another folder with --state DIR")
    free = shutil.disk_usage(place.state).free
    yield Check(
        "disk", free > FREE_BYTES, f"{free / 1e9:.1f} GB free", "make room, or name another --state DIR"
    )


def _sandbox(place: Place, state: list[Check], config: Path | None) -> list[Check]:
    if not all(check.ok for check in state):
        return [Check("sandbox", False, "cannot be tried without a state folder", "see `state` above")]
    try:
        settings = load(place, base_reader(place.root), file=config).settings.sandbox
    except IronworksError:
        settings = SandboxSettings()  # what is wrong with it is told under `configuration`
    try:
        found = make_backend(settings, place.state).doctor()
    except IronworksError as error:
        return [Check("sandbox", False, error.message, error.hint)]
    return [Check(check.name, check.ok, check.detail, check.fix) for check in found]


def _configuration(place: Place, config: Path | None) -> Iterator[Check]:
    try:
        loaded = load(place, base_reader(place.root), file=config)
    except IronworksError as error:
        yield Check("configuration", False, error.message, error.hint)
        return
    if loaded.origin == {"project": "defaults"}:
        yield Check("configuration", False, "there is no ironworks.toml yet", "ironworks init")
        return
    yield Check("configuration", True, "; ".join(loaded.warnings) or "read, trusted, valid")
    yield _tests(loaded)
    yield _tried("agent", lambda: _agents(loaded), "set `use` under [agent]")
    yield from _keys(loaded)


def _tests(loaded: Loaded) -> Check:
    suites = [suite for suite in loaded.settings.project.test if suite.command.strip()]
    fix = "set `test` under [project] to a command that writes a JUnit report to {junit}, and commit it"
    return Check(
        "tests", bool(suites), "; ".join(suite.command for suite in suites) or "no test command", fix
    )


def _agents(loaded: Loaded) -> str:
    """The names of those that the stages use; ConfigError if one cannot work."""
    agents = (loaded.settings.agent, *loaded.settings.stages.values())
    for agent in agents:
        if check_agent(agent) != "command" and loaded.settings.providers and not agent.model:
            raise ConfigError(f"{agent.use} needs a model", hint='set `model = "..."` under [agent]')
    return ", ".join(dict.fromkeys(agent.use + _program(agent.use) for agent in agents))


def _program(agent: str) -> str:
    """Whether what the agent needs is here already; nothing for one that needs nothing."""
    program = PROGRAMS.get(agent)
    if program is None:
        return ""
    here = program.path(programs_folder()).is_file()
    return f" {program.version} ({'installed' if here else 'the first run fetches it, once'})"


def _keys(loaded: Loaded) -> Iterator[Check]:
    """Whether each secret can be found."""
    settings = loaded.settings
    if settings.agent.use != "command" and not settings.providers:
        yield Check("providers", False, "no model provider is configured", "add a [providers.NAME] table")
    asked = asked_providers(loaded)
    for name, provider in settings.providers.items():
        problem = missing_key(loaded, name)
        if problem and name not in asked:
            yield Check(f"provider {name}", True, f"{problem.message}; no agent here needs it")
        elif provider.key is not None:
            yield _tried(f"provider {name}", partial(_found, loaded, provider.key))
    for host, headers in settings.network.headers.items():
        for header, reference in headers.items():
            yield _tried(f"header {header} of {host}", partial(_found, loaded, reference))


def _found(loaded: Loaded, reference: str) -> str:
    """That a secret is there; its value is looked at and dropped."""
    loaded.secrets.resolve(reference)
    return f"{reference} is set"


def _tried(name: str, work: Callable[[], str], fix: str = "") -> Check:
    try:
        return Check(name, True, work())
    except IronworksError as error:
        return Check(name, False, error.message, error.hint or fix)
