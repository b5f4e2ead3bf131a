"""What the paths of a repository stand for: tests, their configuration, protected places, globs."""

import json
import posixpath
import re
import tomllib
from collections.abc import Iterable
from functools import cache

_TEST_FOLDERS = frozenset({"test", "tests", "spec", "specs", "__tests__"})
_TEST_FILE = re.compile(
    r"^(test_.*\.py|.*_test\.(py|go|rb|exs)|.*_spec\.rb|.*\.(test|spec)\.\w+|(Test\w+|\w+Tests?)\.(java|kt|cs))$"
)
_RUNNER_FILE = re.compile(
    r"^(conftest\.py|\.?pytest\.(ini|toml)|tox\.(ini|toml)|setup\.cfg|noxfile\.py|(site|user)customize\.py|.*\.pth|"
    r"(vitest|jest)\.(config|setup)\..*|\.mocharc.*|GNUmakefile|[Mm]akefile|[Jj]ustfile|\.coveragerc)$"
)
_LOCK_FILE = re.compile(
    r"^(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|uv\.lock|poetry\.lock|"
    r"pdm\.lock|Pipfile\.lock|Cargo\.lock|go\.sum|Gemfile\.lock|composer\.lock|requirements.*\.(lock|txt))$"
)
_RUNNER_KEYS = {"package.json": ("scripts", "jest", "mocha", "vitest", "type"), "pyproject.toml": ("tool",)}


def shown(path: str) -> str:
    """`path` as text that can be printed and put into JSON, whatever bytes it is made of."""
    readable = path.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in readable)


def is_test(path: str) -> bool:
    """Whether `path` is a test, or something only tests use."""
    *folders, name = path.split("/")
    return bool(_TEST_FILE.match(name)) or not _TEST_FOLDERS.isdisjoint(folders)


def is_runner_file(path: str) -> bool:
    """Whether the whole file configures how tests are found, run or reported."""
    return bool(_RUNNER_FILE.match(posixpath.basename(path)))


def reconfigures(path: str, old: bytes | None, new: bytes | None) -> bool:
    """Whether a change from `old` to `new` (None = absent) may alter how tests are found, run or reported."""
    if is_runner_file(path):
        return True
    keys = _RUNNER_KEYS.get(posixpath.basename(path))
    return keys is not None and _sections(path, old, keys) != _sections(path, new, keys)


def _sections(path: str, data: bytes | None, keys: tuple[str, ...]) -> object:
    """The parts of a project file that steer a test runner; the bytes themselves where it cannot be read."""
    if data is None:
        return {}
    try:
        text = data.decode()
        document = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
        found = {key: document[key] for key in keys if key in document}
    except (ValueError, RecursionError, TypeError):
        return data
    if "tool" in found and isinstance(found["tool"], dict):
        return {
            name: value
            for name, value in found["tool"].items()
            if name in {"pytest", "coverage", "tox", "hatch"}
        }
    return found


def is_protected(path: str, more: Iterable[str] = ()) -> bool:
    """Whether a reviewer must look at any change of `path`: integration jobs, lock files, `more` globs."""
    locked = bool(_LOCK_FILE.match(posixpath.basename(path)))
    return locked or path.startswith((".github/", ".gitlab", ".circleci/")) or matches(path, more)


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a glob names `path` or a folder above it. `*` stays within a folder, `**` does not."""
    return any(_expression(glob).match(path) for glob in globs)


@cache
def _expression(glob: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    glob = glob.strip().removeprefix("./").rstrip("/")
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    return re.compile(
        "".join(parts.get(piece) or re.escape(piece) for piece in pieces) + r"(?:/.*)?\Z", re.DOTALL
    )


def names(text: str, path: str) -> bool:
    """Whether people's `text` names `path`: in full, by its last part, a folder above it, or as a module."""
    folders = path.split("/")[:-1]
    spelled = [path, posixpath.basename(path)]
    spelled += ["/".join(folders[: depth + 1]) + "/" for depth in range(len(folders))]
    if path.endswith(".py") and folders:
        spelled.append(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    return any(mentions(text, name) for name in spelled)


def mentions(text: str, name: str) -> bool:
    """Whether `name` stands in people's text, not as a part of a longer name or path."""
    return bool(name) and bool(re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", text))
