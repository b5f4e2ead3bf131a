"""Looks at a repository and guesses how it is built and tested; every guess comes with its reason.

Reads files only: nothing of a stranger's repository is run.
"""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.app.document import read_document
from ironworks.core.errors import ConfigError, MissingError

PYTEST = "-m pytest -q --junitxml={junit}"
VENV = "$HOME/venv"
"""Outside of the repository: what is in there would count as the worker's change."""


class Guess(NamedTuple):
    """What `init` writes down. Empty `test` = it could not tell. `network` names presets of the gateway."""

    language: str
    manager: str
    prepare: tuple[str, ...]
    test: str
    network: tuple[str, ...]
    reasons: tuple[str, ...]


UNKNOWN = Guess(
    "", "", (), "", (), ("nothing here says how it is tested: set `test` under [project] yourself",)
)


class _Folder:
    """The top folder of a repository, read with care."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, name: str) -> str:
        try:
            return read_document(self.root / name, follow=False).decode("utf-8", "replace")
        except (MissingError, ConfigError):
            return ""

    def has(self, *names: str) -> str:
        """The first of these that is there; empty if none is."""
        return next((name for name in names if (self.root / name).exists()), "")

    def toml(self, name: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}

    def json(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def detect(root: Path) -> Guess:
    """The first guess that fits: Python, Node, Go, Rust, a Makefile with a `test` target, or UNKNOWN."""
    folder = _Folder(root)
    guesses: tuple[Callable[[_Folder], Guess | None], ...] = (_python, _node, _go, _rust, _make)
    return next((guess for look in guesses if (guess := look(folder))), UNKNOWN)


# -- Python ----------------------------------------------------------------------------------------------


def _python(folder: _Folder) -> Guess | None:
    marker = folder.has(
        "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "pytest.ini", "tox.ini"
    )
    if not marker and not any(folder.root.glob("test*/*.py")) and not any(folder.root.glob("*.py")):
        return None
    reasons = [f"{marker or 'the .py files'} says Python"]
    if folder.has("uv.lock"):
        reasons.append("uv.lock says uv")
        install = f'UV_PROJECT_ENVIRONMENT="{VENV}" uv sync --frozen --all-extras --all-groups'
        return Guess("python", "uv", (install,), _venv(PYTEST), ("uv", "pip"), (*reasons, _tests(folder)))
    if folder.has("poetry.lock"):
        reasons.append("poetry.lock says poetry")
        steps = (_make_venv(), f'. "{VENV}/bin/activate" && poetry install --no-interaction')
        return Guess("python", "poetry", steps, _venv(PYTEST), ("pip",), (*reasons, _tests(folder)))
    steps = (_make_venv(), f'"{VENV}/bin/pip" install -q {" ".join(_requirements(folder, reasons))}')
    return Guess("python", "pip", steps, _venv(PYTEST), ("pip",), (*reasons, _tests(folder)))


def _requirements(folder: _Folder, reasons: list[str]) -> list[str]:
    """What pip is to install, pytest included."""
    wanted = ["pytest"]
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-test.txt", "dev-requirements.txt"):
        if folder.has(name):
            reasons.append(f"{name} is installed")
            wanted += ["-r", name]
    project = folder.toml("pyproject.toml")
    if "build-system" in project or "project" in project or folder.has("setup.py"):
        extras = [name for name in ("test", "tests", "testing", "dev") if name in _extras(project)]
        wanted += ["-e", f"'.[{','.join(extras)}]'" if extras else "."]
        reasons.append("the project itself is installed" + (f", with {', '.join(extras)}" if extras else ""))
        if "egg-info" not in folder.text(".gitignore"):
            reasons.append(
                "add `*.egg-info/` to .gitignore, or what the installation writes counts as a change"
            )
    return wanted


def _extras(project: dict[str, Any]) -> dict[str, Any]:
    extras = project.get("project", {})
    found = extras.get("optional-dependencies", {}) if isinstance(extras, dict) else {}
    return found if isinstance(found, dict) else {}


def _tests(folder: _Folder) -> str:
    if "pytest" in folder.text("pyproject.toml") + folder.text("setup.cfg") + folder.text("tox.ini"):
        return "its configuration names pytest"
    return "pytest runs pytest's and unittest's tests, and writes the report"


def _make_venv() -> str:
    return f'python3 -m venv "{VENV}"'


def _venv(command: str) -> str:
    return f'"{VENV}/bin/python" {command}'


# -- Node ------------------------------------------------------------------------------------------------


def _node(folder: _Folder) -> Guess | None:
    if not folder.has("package.json"):
        return None
    package = folder.json("package.json")
    manager, install = _node_manager(folder)
    scripts = package.get("scripts", {})
    script = str(scripts.get("test", "")) if isinstance(scripts, dict) else ""
    known = f"{script} {json.dumps([package.get('dependencies'), package.get('devDependencies')])}"
    test, reason = _node_test(known, script)
    reasons = (
        "package.json says Node",
        f"{folder.has(*_NODE_LOCKS) or 'no lock file'} says {manager}",
        reason,
    )
    return Guess("node", manager, (install,), test, ("npm",), reasons)


_NODE_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
    "npm-shrinkwrap.json": ("npm", "npm ci"),
}


def _node_manager(folder: _Folder) -> tuple[str, str]:
    return _NODE_LOCKS.get(folder.has(*_NODE_LOCKS), ("npm", "npm install --no-package-lock"))


def _node_test(known: str, script: str) -> tuple[str, str]:
    if "vitest" in known:
        return (
            "npx vitest run --reporter=junit --outputFile={junit}",
            "it uses vitest, which writes the report",
        )
    if "jest-junit" in known:
        command = 'JEST_JUNIT_OUTPUT_FILE="{junit}" npx jest --ci --reporters=jest-junit'
        return command, "it uses jest with jest-junit, which writes the report"
    if re.search(r"\bjest\b", known):
        return "", "it uses jest: add the package jest-junit, then run `ironworks init --force`"
    if "mocha" in known:
        return 'npx mocha --reporter xunit --reporter-option output="{junit}"', "it uses mocha"
    if "node --test" in script or not script:
        command = "node --test --test-reporter=junit --test-reporter-destination={junit}"
        return command, "Node's own test runner writes the report"
    return "", f"the test script {script[:60]!r} writes no JUnit report that we know of: set `test` yourself"


# -- others ----------------------------------------------------------------------------------------------


def _go(folder: _Folder) -> Guess | None:
    if not folder.has("go.mod"):
        return None
    prepare = ("go mod download", "go install gotest.tools/gotestsum@latest")
    test = '"$(go env GOPATH)/bin/gotestsum" --junitfile={junit} ./...'
    reasons = ("go.mod says Go", "gotestsum turns `go test` into the report", _HOSTS.format("module proxy"))
    return Guess("go", "go", prepare, test, (), reasons)


_HOSTS = "name the hosts of your {} under [network] allow: there is no preset for them"


def _rust(folder: _Folder) -> Guess | None:
    if not folder.has("Cargo.toml"):
        return None
    reasons = (
        "Cargo.toml says Rust",
        "`cargo test` writes no JUnit report: install cargo-nextest in `prepare`, and set `test` to "
        "`cargo nextest run --profile ci` with its report at {junit}",
        _HOSTS.format("crate registry"),
    )
    return Guess("rust", "cargo", ("cargo fetch",), "", (), reasons)


def _make(folder: _Folder) -> Guess | None:
    name = folder.has("GNUmakefile", "Makefile", "makefile")
    if not name or not re.search(r"^test\s*:", folder.text(name), re.MULTILINE):
        return None
    reasons = (
        f"{name} has a target `test`",
        "make it write a JUnit report to $REPORT, or change `test`",
    )
    return Guess("make", "make", (), "make test REPORT={junit}", (), reasons)
