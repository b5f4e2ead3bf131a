"""A real package: the changes of its next release, as a backlog, and an agent that is honest or lies."""

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.releases import Releases
from tests.e2e.workshop import Workshop, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGE, OLDER, NEWER = "boltons", "24.0.0", "24.1.0"
NOTES = ("CHANGELOG.md", "docs/conf.py", "setup.py", "tox.ini")
TIDIED = ("deprutils", "funcutils", "mathutils", "strutils", "timeutils", "urlutils")
PREPARE = 'python3 -m venv "$HOME/venv" && "$HOME/venv/bin/pip" install --quiet "pytest<9"'
TEST = '"$HOME/venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml={junit} tests'
CONFIGURATION = f"""\
[project]
base = "main"
prepare = ['{PREPARE}']
test = '{TEST}'
"""
OPERATOR = """
[limits]
max_rounds = 1
parallel = 4
[network]
prepare = ["pip"]
"""
COMMIT = "git add -A && git commit -qm 'Next release'"


def both(module: str) -> list[str]:
    return [f"{PACKAGE}/{module}.py", f"tests/test_{module}.py"]


# What the release did, in parts that each stand alone: title → kind, files.
CHANGES: dict[str, tuple[str, list[str]]] = {
    "iter_find_files() takes a max_depth": ("feature", both("fileutils")),
    "research() takes an enter callback, and remap() can trace": ("feature", both("iterutils")),
    "A sentinel stays itself when it is copied": ("bug", both("typeutils")),
    "Remnants of Python 2 go": ("refactor", [f"{PACKAGE}/{module}.py" for module in TIDIED]),
    "Python 3.13, and a changelog": ("chore", [*both("tbutils"), *NOTES]),
}
UNCOMMITTED = "A sentinel stays itself when it is copied"

# The same work, handed in by a liar: title → files of the patch, what else is done, what is found.
LIES: dict[str, tuple[list[str], list[str], str]] = {
    "Find files down to a depth (tests dropped)": (both("fileutils")[:1], [COMMIT], "no-fail-to-pass"),
    "Search with an enter callback (source dropped)": (both("iterutils")[1:], [COMMIT], "failing-test"),
    "Copy sentinels (and something else goes)": (
        both("typeutils"),
        ["git rm -q TODO.rst", COMMIT],
        "deleted-file",
    ),
}


def honest(title: str, kind: str) -> dict[str, Any]:
    commands = [f'git apply "/agent/{title}.patch"']
    return {"kind": kind, "work": [commands if title == UNCOMMITTED else [*commands, COMMIT]]}


def lie(title: str, more: list[str]) -> dict[str, Any]:
    return {"kind": "feature", "work": [[f'git apply "/agent/{title}.patch"', *more]]}


@pytest.mark.spec("EN-25")
def test_the_changes_of_a_real_release_land_together_and_the_same_work_with_a_lie_does_not(
    tmp_path: Path,
) -> None:
    releases = Releases(tmp_path, PACKAGE, OLDER, NEWER, extra={"ironworks.toml": CONFIGURATION})
    plan = {title: honest(title, kind) for title, (kind, _) in CHANGES.items()}
    plan |= {title: lie(title, more) for title, (_, more, _) in LIES.items()}
    shop = Workshop(tmp_path, plan, more=OPERATOR, repository=releases.repository)
    patches = {title: paths for title, (_, paths) in CHANGES.items()}
    patches |= {title: paths for title, (paths, _, _) in LIES.items()}
    for title, paths in patches.items():
        (tmp_path / "agent" / f"{title}.patch").write_text(releases.patch(paths), "utf-8")

    code, report = shop.run()

    assert states(report) == dict.fromkeys(CHANGES, "landed") | dict.fromkeys(LIES, "parked"), report
    assert code == 1
    proposed = {pull["title"] for pull in report["pull_requests"] if pull["kind"] == "issue"}
    assert proposed == set(CHANGES)
    assert not report["integration"]["evicted"]
    by_title = {issue["title"]: issue for issue in report["issues"]}
    assert by_title[UNCOMMITTED]["evidence"]["work"]["ghost"] is True
    for title, (_, _, code_found) in LIES.items():
        findings = by_title[title]["evidence"]["verification"]["findings"]
        assert code_found in {finding["code"] for finding in findings if finding["fatal"]}, (title, findings)
    # All of the release but the index's own notes about it is there, and nothing else is.
    landed = {path for _, paths in CHANGES.values() for path in paths}
    notes = {path for path in releases.changed() if path == "PKG-INFO" or ".egg-info/" in path}
    assert releases.changed() == landed | notes
    assert set(releases.difference("ironworks/integration").splitlines()) == notes
    passed, output, _ = shop.ironworks(
        "verify", "ironworks/integration", "--json", "--config", str(shop.config)
    )
    assert passed == 0, output
