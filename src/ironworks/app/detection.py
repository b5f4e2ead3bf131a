"""Looks at a repository and guesses how it is built and tested; every guess comes with its reason.

Reads files only: nothing of a stranger's repository is run.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.app.document import read_document
from ironworks.core.errors import ConfigError, MissingError

PYTEST = "-m pytest -q --junitxml={junit}"
VENV = "$HOME/venv"
"""Outside of the repository: what is in there would count as the worker's change."""


TOOLS = 'PATH="$PATH:$HOME/tools/bin"'


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
        sync = f'{TOOLS} UV_PROJECT_ENVIRONMENT="{VENV}" uv sync --frozen --all-extras --all-groups'
        return Guess(
            "python", "uv", (_tool("uv"), sync), _pytest(folder), ("uv", "pip"), (*reasons, _tests(folder))
        )
    if folder.has("poetry.lock"):
        reasons.append("poetry.lock says poetry")
        install = f'. "{VENV}/bin/activate" && {TOOLS} poetry install --no-interaction'
        steps: tuple[str, ...] = (_tool("poetry"), _make_venv(), install)
        return Guess("python", "poetry", steps, _pytest(folder), ("pip",), (*reasons, _tests(folder)))
    wanted = " ".join(_requirements(folder, reasons))
    steps = (_make_venv(), f'{_version(folder, reasons)}"{VENV}/bin/pip" install -q {wanted}')
    return Guess("python", "pip", steps, _pytest(folder), ("pip",), (*reasons, _tests(folder)))


def _version(folder: _Folder, reasons: list[str]) -> str:
    """What a build that asks git tags for its version is told instead: a sandbox has no tags."""
    build = folder.toml("pyproject.toml").get("build-system")
    requires = build.get("requires") if isinstance(build, dict) else None
    asks = re.search(r"setuptools[-_.]scm|hatch-vcs|versioneer-?518", str(requires).lower())
    if not asks:
        return ""
    told = re.search(r"^Version: ([0-9][\w.+!-]*)\s*$", folder.text("PKG-INFO"), re.MULTILINE)
    version = told[1] if told else "99.0"
    reasons.append(
        f"{asks[0]} asks git tags for the version, which a sandbox does not have: {version} stands in"
    )
    return f"SETUPTOOLS_SCM_PRETEND_VERSION={shlex.quote(version)} "


_REQUIREMENTS = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-test.txt",
    "requirements_dev.txt",
    "requirements_test.txt",
    "dev-requirements.txt",
    "test-requirements.txt",
    "requirements/test.txt",
    "requirements/tests.txt",
    "tests/requirements.txt",
)
_TESTING = ("test", "tests", "testing", "dev")
"""What projects call what their tests need."""
_PLUGINS = {
    "--cov": "pytest-cov",
    "asyncio_mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark",
    "--numprocesses": "pytest-xdist",
    "--timeout": "pytest-timeout",
    "--mypy": "pytest-mypy",
}
"""pytest refuses to start when its configuration asks for an option that it does not know."""


def _requirements(folder: _Folder, reasons: list[str]) -> list[str]:
    """What pip is to install, pytest included."""
    wanted = ["pytest"]
    for name in _REQUIREMENTS:
        if folder.has(name):
            reasons.append(f"{name} is installed")
            wanted += ["-r", name]
    project = folder.toml("pyproject.toml")
    if grouped := _grouped(project):
        reasons.append(f"the dependency groups of pyproject.toml name {', '.join(grouped)[:200]}")
        wanted += [shlex.quote(requirement) for requirement in grouped]
    configuration = "".join(map(folder.text, ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini")))
    plugins = [plugin for option, plugin in _PLUGINS.items() if option in configuration]
    if plugins:
        reasons.append(f"its pytest configuration asks for {', '.join(plugins)}")
        wanted += plugins
    if "build-system" in project or "project" in project or folder.has("setup.py"):
        extras = [name for name in _TESTING if name in _extras(project)]
        wanted += ["-e", f"'.[{','.join(extras)}]'" if extras else "."]
        reasons.append("the project itself is installed" + (f", with {', '.join(extras)}" if extras else ""))
        if "egg-info" not in folder.text(".gitignore"):
            reasons.append(
                "add `*.egg-info/` to .gitignore, or what the installation writes counts as a change"
            )
    return wanted


def _grouped(project: dict[str, Any]) -> list[str]:
    """The requirements of the dependency groups that are about tests, groups inside included."""
    groups = _table(project, "dependency-groups")
    found: dict[str, None] = {}
    names = list(_TESTING)
    for name in names:  # Grows while it is read; each name comes once, so that no circle is gone around.
        entries = groups.get(name)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str):
                found[entry] = None
            elif isinstance(entry, dict) and (other := str(entry.get("include-group"))) not in names:
                names.append(other)
    # What begins with a dash would be an option of pip.
    return [requirement for requirement in found if not requirement.lstrip().startswith("-")]


def _extras(project: dict[str, Any]) -> dict[str, Any]:
    extras = project.get("project", {})
    found = extras.get("optional-dependencies", {}) if isinstance(extras, dict) else {}
    return found if isinstance(found, dict) else {}


def _tests(folder: _Folder) -> str:
    if "pytest" in folder.text("pyproject.toml") + folder.text("setup.cfg") + folder.text("tox.ini"):
        return "its configuration names pytest"
    return "pytest runs pytest's and unittest's tests, and writes the report"


def _tool(name: str) -> str:
    """Gets a program unless the sandbox has it."""
    fetch = f'python3 -m venv "$HOME/tools" && "$HOME/tools/bin/pip" install -q {name}'
    return f"command -v {name} >/dev/null || {{ {fetch}; }}"


def _make_venv() -> str:
    return f'python3 -m venv "{VENV}"'


def _pytest(folder: _Folder) -> str:
    """pytest looks into files called test_*.py by itself, not into a single test.py."""
    lone = folder.has("test.py", "tests.py")
    others = [
        path for path in (*folder.root.glob("test_*.py"), *folder.root.glob("test*/")) if path.name != lone
    ]
    return f'"{VENV}/bin/python" {PYTEST}' + (f" {lone}" if lone and not others else "")


# -- Node ------------------------------------------------------------------------------------------------


def _node(folder: _Folder) -> Guess | None:
    if not folder.has("package.json"):
        return None
    package = folder.json("package.json")
    manager, install = _node_manager(folder)
    steps, test, reason = _node_test(package)
    reasons = [
        "package.json says Node",
        f"{folder.has(*_NODE_LOCKS) or 'no lock file'} says {manager}",
        reason,
    ]
    if "node_modules" not in folder.text(".gitignore"):
        reasons.append(
            "add `node_modules/` to .gitignore, or what is installed counts as a change, and is lost"
        )
    return Guess("node", manager, (install, *steps), test, ("npm",), tuple(reasons))


_NODE_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
    "npm-shrinkwrap.json": ("npm", "npm ci"),
}


def _node_manager(folder: _Folder) -> tuple[str, str]:
    return _NODE_LOCKS.get(folder.has(*_NODE_LOCKS), ("npm", "npm install --no-package-lock"))


def _node_test(package: dict[str, Any]) -> tuple[tuple[str, ...], str, str]:
    """Further steps to prepare, the command, and why."""
    known = {**_table(package, "dependencies"), **_table(package, "devDependencies")}
    scripts = {name: str(text) for name, text in _table(package, "scripts").items()}
    for command in _commands(scripts, "test"):
        if found := _run_by(command, known):
            return found
    for runner in ("vitest", "jest", "mocha"):
        if runner in known:
            return _run_by(runner, known) or ((), "", "")
    if not _commands(scripts, "test"):
        return _run_by("node --test", known) or ((), "", "")
    told = scripts.get("test", "")[:60]
    return (), "", f"the test script {told!r} writes no JUnit report that we know of: set `test` yourself"


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _commands(scripts: dict[str, str], name: str) -> list[str]:
    """The commands of a script one after the other, those of each script it runs included once."""
    found: list[str] = []
    seen = {name}
    waiting = _parts(scripts.get(name, ""))
    while waiting:
        command = waiting.pop()
        nested = re.search(r"(?:^|\s)(?:npm|pnpm|yarn)(?: run)? ([\w:.-]+)$", command)
        if not nested or nested[1] not in scripts or nested[1] in seen:
            found.append(command)
        else:
            seen.add(nested[1])
            waiting += _parts(scripts[nested[1]])
    return found


def _parts(script: str) -> list[str]:
    """The last one first."""
    parts = [part.strip() for part in re.split(r"&&|;|\|\|", script)]
    return [part for part in reversed(parts) if part]


def _run_by(command: str, known: dict[str, Any]) -> tuple[tuple[str, ...], str, str] | None:
    """The same tests with a report; None when no runner that we know is in the command."""
    words = re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", command)
    settings = [word for word in words if re.match(r"[A-Z_][A-Z0-9_]*=", word)]
    names = [word.rpartition("/")[2] for word in words]
    for runner, report in _NODE_REPORTS.items():
        if runner not in names or (runner == "node" and "--test" not in words):
            continue
        rest = _without_reports(words[names.index(runner) + 1 :], runner)
        steps: tuple[str, ...] = ()
        if runner == "jest" and "jest-junit" not in known:
            steps = ("npm install --no-save --no-package-lock jest-junit",)
        if runner == "tape":
            return steps, " ".join([*settings, report, *rest]), "tape speaks TAP, which is a report as well"
        why = "Node's own test runner" if runner == "node" else f"{runner}, which the project uses,"
        return steps, " ".join([*settings, report, *rest]), f"{why} writes the report"
    return None


_NODE_REPORTS = {
    "vitest": "npx vitest run --reporter=junit --outputFile={junit}",
    "jest": 'JEST_JUNIT_OUTPUT_FILE="{junit}" npx jest --ci --reporters=jest-junit',
    "mocha": 'npx mocha --reporter xunit -O output="{junit}"',
    "tape": "npx tape",
    "node": "node --test --test-reporter=junit --test-reporter-destination={junit}",
}
_TAKES_A_WORD = frozenset(
    {"-O", "-R", "--reporter", "--reporter-option", "--reporter-options", "--reporters"}
)


def _without_reports(words: list[str], runner: str) -> list[str]:
    """Options of a runner, less those about reports, coverage and watching."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in _TAKES_A_WORD:
            skip = not skip
            continue
        about_reports = word.startswith(("--reporter", "--test-reporter", "--coverage", "--watch"))
        if not about_reports and word not in {"run", "--test", "|"}:
            kept.append(word)
        if word == "|":
            break
    return kept


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
