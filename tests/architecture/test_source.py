"""Limits that keep the source small, honest and free of the machine it was written on."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
MODULE_LINES = 450
FUNCTION_LINES = 60
# Written in pieces, so that this page does not contain what it forbids.
HOSTS = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("yarnpkg", "com"),
    ("crates", "io"),
    ("golang", "org"),
    ("rubygems", "org"),
)
FOLDERS = (("work", "main"), ("work", "shared"), ("work", ".library"), ("tmp", "brief"), ("opt", "wheels"))
FORBIDDEN = [".".join(host) for host in HOSTS] + ["/" + "/".join(folder) for folder in FOLDERS]


def python_files(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text("utf-8")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def tracked_files() -> list[Path]:
    # The checkout may belong to another user, which git refuses unless told.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30
    )
    if listing.returncode:
        pytest.skip("needs a git checkout of the project")
    return [path for name in listing.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.spec("PJ-3")
def test_modules_are_short() -> None:
    sizes = {str(path): len(text.splitlines()) for path, text in python_files("src")}
    assert {path: lines for path, lines in sizes.items() if lines > MODULE_LINES} == {}


@pytest.mark.spec("PJ-3")
def test_functions_are_short() -> None:
    long = [
        f"{path}:{function.lineno} {function.name}"
        for path, text in python_files("src")
        for function in functions(ast.parse(text))
        if (function.end_lineno or 0) - function.lineno >= FUNCTION_LINES
    ]
    assert long == []


@pytest.mark.spec("PJ-4")
def test_nothing_is_mocked() -> None:
    imports = (
        (path, node)
        for path, text in python_files("src", "tests")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    mocked = [f"{path}:{node.lineno}" for path, node in imports if "unittest.mock" in imported(node)]
    assert mocked == []


def imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {str(node.module)} | {f"{node.module}.{name}" for name in names}
    return names


@pytest.mark.spec("PJ-5")
def test_no_file_names_a_registry_or_the_machine_it_was_written_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked_files()
        for word in FORBIDDEN
        if word.encode() in path.read_bytes()
    ]
    assert found == []


@pytest.mark.spec("PJ-6")
@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_pin_every_requirement_by_hash_and_name_no_host(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    entries = text.replace("\\\n", "").splitlines()
    requirements = [line for line in entries if line and line[0] not in "# "]
    assert requirements
    assert [line for line in requirements if "==" not in line or "--hash=sha256:" not in line] == []
    assert "://" not in text


@pytest.mark.spec("PJ-6")
@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_satisfy_what_the_project_asks_for(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["dependencies"] + (project["optional-dependencies"]["dev"] if "dev" in name else [])
    lines = (ROOT / name).read_text("utf-8").splitlines()
    pins = dict(line.split(" ")[0].split("==") for line in lines if "==" in line and line[0] not in "# ")
    requirements = [Requirement(text) for text in wanted]
    assert [str(r) for r in requirements if not r.specifier.contains(pins.get(r.name, "0"))] == []
