"""Paths are recognised by name, wherever they lie."""

import pytest

from ironworks.verify.path import is_protected, is_test, matches, mentions, names, reconfigures, shown


@pytest.mark.parametrize(
    "path",
    [
        "tests/x.json",
        "a/test/b.py",
        "test_a.py",
        "pkg/a_test.go",
        "src/a.test.ts",
        "src/a.spec.js",
        "web/__tests__/a.js",
        "spec/a.rb",
        "src/ATest.java",
        "tests/conftest.py",
    ],
)
def test_tests_are_known_by_folder_or_name(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize(
    "path", ["testing/a.py", "src/latest.py", "contest.py", "a/tests.md", "testament", "test"]
)
def test_what_only_sounds_like_a_test_is_none(path: str) -> None:
    assert not is_test(path)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("conftest.py", b"", b"x", True),
        ("a/b/pytest.ini", None, b"", True),
        ("tox.ini", b"a", None, True),
        ("lib/evil.pth", None, b"import os", True),
        ("sitecustomize.py", None, b"", True),
        ("Makefile", b"a", b"b", True),
        ("vitest.config.ts", b"a", b"b", True),
        ("src/conf.py", b"a", b"b", False),
        ("pyproject.toml", b"[project]\nname='a'", b"[project]\nname='b'", False),
        ("pyproject.toml", b"[tool.ruff]\na=1", b"[tool.ruff]\na=2", False),
        ("pyproject.toml", b"", b"[tool.pytest.ini_options]\naddopts='-k x'", True),
        ("pyproject.toml", b"[tool.pytest.ini_options]\na=1", None, True),
        ("pyproject.toml", b"[tool.pytest.ini_options]\na=1", b"[tool", True),
        ("pyproject.toml", b"", b"tool = 3", True),
        ("package.json", b'{"dependencies": {}}', b'{"dependencies": {"a": "1"}}', False),
        ("package.json", b'{"scripts": {"test": "a"}}', b'{"scripts": {"test": "true"}}', True),
        ("package.json", b"{}", b"[", True),
        ("package.json", b"{}", b"[1]", False),
        ("package.json", b"{}", b"[" * 100_000, True),
    ],
)
def test_a_change_of_how_tests_are_run_is_seen(
    path: str, old: bytes | None, new: bytes | None, expected: bool
) -> None:
    assert reconfigures(path, old, new) == expected


def test_integration_jobs_and_lock_files_are_protected_and_more_can_be() -> None:
    for path in (".github/workflows/a.yml", "web/package-lock.json", "uv.lock", "requirements-dev.lock"):
        assert is_protected(path)
    assert not is_protected("src/a.py")
    assert is_protected("src/a.py", ("src/*",))


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**/b.py", "src/b.py", True),
        ("src/**/b.py", "src/x/y/b.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src", "src/x/a.py", True),
        ("src/", "src/a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("src", "srcs/a.py", False),
        ("**", "any/thing", True),
        ("*", "any/thing", True),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("a.py", "aXpy", False),
        ("a[1].py", "a[1].py", True),
        ("**/*.md", "README.md", True),
        ("docs/**", "docs/a\nb", True),
    ],
)
def test_globs_mean_what_people_expect(glob: str, path: str, expected: bool) -> None:
    assert matches(path, (glob,)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("remove old/util.py please", True),
        ("`util.py` can go.", True),
        ("delete the old/ folder", True),
        ("drop old.util", True),
        ("the util is fine", False),
        ("remove new/util.py", False),
        ("myutil.py", False),
        ("util.pyc", False),
        ("", False),
    ],
)
def test_a_text_names_a_path_only_by_what_is_unmistakably_it(text: str, expected: bool) -> None:
    assert names(text, "old/util.py") == expected
    assert not mentions(text, "")


def test_any_path_can_be_shown() -> None:
    assert shown("a\nb\udcff/ü\x1b[31m") == "a\\nb\\udcff/ü\\x1b[31m"
