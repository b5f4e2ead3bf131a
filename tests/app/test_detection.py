import shutil
from pathlib import Path

import pytest
from tests.app.ground import repository, write

from ironworks.app.base import base_reader
from ironworks.app.configuration import load
from ironworks.app.detection import UNKNOWN, detect
from ironworks.app.place import find_place
from ironworks.app.starter import starter
from ironworks.app.trust import TrustStore

pytestmark = pytest.mark.spec("CF-11")

CASES: dict[str, tuple[dict[str, str], tuple[str, str], str]] = {
    "pyproject": ({"pyproject.toml": '[project]\nname = "x"\n'}, ("python", "pip"), "pytest"),
    "requirements": ({"requirements.txt": "click\n"}, ("python", "pip"), "pytest"),
    "uv": ({"pyproject.toml": "", "uv.lock": ""}, ("python", "uv"), "pytest"),
    "poetry": ({"pyproject.toml": "", "poetry.lock": ""}, ("python", "poetry"), "pytest"),
    "setup.py": ({"setup.py": ""}, ("python", "pip"), "pytest"),
    "plain tests": ({"tests/test_a.py": ""}, ("python", "pip"), "pytest"),
    "vitest": ({"package.json": '{"devDependencies": {"vitest": "1"}}'}, ("node", "npm"), "vitest"),
    "jest-junit": (
        {"package.json": '{"devDependencies": {"jest": "1", "jest-junit": "1"}}'},
        ("node", "npm"),
        "jest",
    ),
    "mocha": (
        {"package.json": '{"devDependencies": {"mocha": "1"}}', "yarn.lock": ""},
        ("node", "yarn"),
        "mocha",
    ),
    "node": (
        {"package.json": '{"scripts": {"test": "node --test"}}', "pnpm-lock.yaml": ""},
        ("node", "pnpm"),
        "--test",
    ),
    "go": ({"go.mod": "module x\n"}, ("go", "go"), "gotestsum"),
    "make": ({"Makefile": "all:\n\ntest: all\n\ttrue\n"}, ("make", "make"), "make test"),
}


@pytest.mark.parametrize(("files", "kind", "test"), CASES.values(), ids=CASES.keys())
def test_the_language_manager_and_test_command_are_guessed(
    tmp_path: Path, files: dict[str, str], kind: tuple[str, str], test: str
) -> None:
    write(tmp_path, files)
    guess = detect(tmp_path)
    assert (guess.language, guess.manager) == kind
    assert test in guess.test
    assert "{junit}" in guess.test
    assert guess.reasons


@pytest.mark.parametrize(
    "files",
    [
        {"README": "x"},
        {"Makefile": "all:\n"},
    ],
)
def test_what_cannot_be_told_is_said(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert detect(tmp_path) == UNKNOWN
    assert "yourself" in UNKNOWN.reasons[0]


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"Cargo.toml": ""}, "nextest"),
        ({"package.json": '{"scripts": {"test": "tap"}}'}, "set `test` yourself"),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, "jest-junit"),
    ],
)
def test_a_runner_without_a_report_is_not_pretended_to_have_one(
    tmp_path: Path, files: dict[str, str], word: str
) -> None:
    write(tmp_path, files)
    guess = detect(tmp_path)
    assert guess.test == ""
    assert word in " ".join(guess.reasons)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"scripts": 3}', '{"scripts": {"test": null}}', "[" * 9999, "\x00"]
)
def test_broken_files_of_a_stranger_do_no_harm(tmp_path: Path, content: str) -> None:
    write(tmp_path, {"package.json": content})
    assert detect(tmp_path).language == "node"
    write(tmp_path, {"pyproject.toml": content})
    assert detect(tmp_path).language == "python"


def test_extras_for_tests_are_installed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"pyproject.toml": '[project]\nname="x"\n[project.optional-dependencies]\ntest=["y"]\ndocs=["z"]\n'},
    )
    assert "'.[test]'" in detect(tmp_path).prepare[-1]


@pytest.mark.parametrize(("files", "kind", "test"), CASES.values(), ids=CASES.keys())
def test_what_init_writes_can_be_loaded(
    tmp_path: Path, files: dict[str, str], kind: tuple[str, str], test: str
) -> None:
    root = repository(tmp_path / "r", files)
    text = starter(detect(root), "main", {"OPENAI_API_KEY": "sk-test-1"})
    write(root, {"ironworks.toml": text})
    TrustStore().record(root, text.encode())
    settings = load(find_place(root), base_reader(root)).settings
    assert settings.project.test[0].command == detect(root).test
    assert settings.project.prepare == detect(root).prepare
    assert settings.providers["openai"].key == "env:OPENAI_API_KEY"
    assert "sk-test-1" not in text


@pytest.mark.parametrize("base", ['a"b', "a\\b", "é", "x]y", "\x7f"])
def test_a_name_from_the_repository_stays_data(base: str) -> None:
    import tomllib

    assert tomllib.loads(starter(UNKNOWN, base, {}))["project"]["base"] == base


def test_a_package_manager_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    write(tmp_path, CASES["uv"][0])
    assert shutil.which("uv") is None
    assert detect(tmp_path).manager == "uv"
