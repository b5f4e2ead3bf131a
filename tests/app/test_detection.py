import json
import shutil
import tomllib
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
    ("scripts", "test"),
    [
        ({"test": "npm run lint && npm run unit", "lint": "eslint .", "unit": "c8 --100 node --test a.js"},
         "node --test --test-reporter=junit --test-reporter-destination={junit} a.js"),
        ({"test": "mocha --reporter=spec 'tests/**/*.js'"},
         "npx mocha --reporter xunit -O output=\"{junit}\" 'tests/**/*.js'"),
        ({"test": "mocha -R dot --require x tests"},
         'npx mocha --reporter xunit -O output="{junit}" --require x tests'),
        ({"test": "NODE_ENV=test jest --coverage --config=j.js"},
         'NODE_ENV=test JEST_JUNIT_OUTPUT_FILE="{junit}" npx jest --ci --reporters=jest-junit --config=j.js'),
        ({"test": "vitest run --reporter=verbose src"},
         "npx vitest run --reporter=junit --outputFile={junit} src"),
        ({"test": "npm run test"}, ""),
        ({"test": "c8 --100 tape 'test/*.js' | tap-dot"}, "npx tape 'test/*.js'"),
        ({"test": "tap test/*.js"}, ""),
    ],
)  # fmt: skip
def test_a_node_script_is_followed_to_its_runner(tmp_path: Path, scripts: dict[str, str], test: str) -> None:
    write(tmp_path, {"package.json": json.dumps({"scripts": scripts})})
    assert detect(tmp_path).test == test


def test_jest_gets_what_writes_its_report(tmp_path: Path) -> None:
    write(tmp_path, {"package.json": '{"scripts": {"test": "jest"}, "devDependencies": {"jest": "1"}}'})
    guess = detect(tmp_path)
    assert guess.prepare[-1] == "npm install --no-save --no-package-lock jest-junit"
    write(tmp_path, {"package.json": '{"devDependencies": {"jest": "1", "jest-junit": "1"}}'})
    assert detect(tmp_path).prepare == ("npm install --no-package-lock",)


def test_dependency_groups_and_plugins_are_installed(tmp_path: Path) -> None:
    test = '["attrs; python_version>\'3\'", {include-group = "more"}]'
    groups = f'[dependency-groups]\ntest = {test}\nmore = ["toolz"]\n'
    options = '[tool.pytest.ini_options]\naddopts = "--cov"\nasyncio_mode = "auto"\n'
    write(tmp_path, {"pyproject.toml": groups + options})
    install = detect(tmp_path).prepare[-1]
    for wanted in ("'attrs; python_version>'\"'\"'3'\"'\"''", "toolz", "pytest-cov", "pytest-asyncio"):
        assert wanted in install


def test_a_version_that_comes_from_tags_is_stood_in_for(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": '[build-system]\nrequires = ["setuptools-scm[toml]>=8"]\n'})
    assert detect(tmp_path).prepare[-1].startswith("SETUPTOOLS_SCM_PRETEND_VERSION=99.0 ")
    write(tmp_path, {"PKG-INFO": "Name: x\nVersion: 1.6.0\n"})
    assert detect(tmp_path).prepare[-1].startswith("SETUPTOOLS_SCM_PRETEND_VERSION=1.6.0 ")
    write(tmp_path, {"PKG-INFO": "Version: 1; rm -rf /\n"})
    assert detect(tmp_path).prepare[-1].startswith("SETUPTOOLS_SCM_PRETEND_VERSION=99.0 ")


def test_a_lone_test_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"setup.py": "", "test.py": ""})
    assert detect(tmp_path).test.endswith("{junit} test.py")
    write(tmp_path, {"tests/test_a.py": ""})
    assert detect(tmp_path).test.endswith("{junit}")


def test_groups_that_include_each_other_end(tmp_path: Path) -> None:
    groups = (
        '[dependency-groups]\ntest = [{include-group = "dev"}, 3]\ndev = [{include-group = "test"}, "six"]\n'
    )
    write(tmp_path, {"pyproject.toml": groups})
    assert detect(tmp_path).prepare[-1].endswith("six")


def test_scripts_and_groups_that_name_themselves_many_times_are_followed_once(tmp_path: Path) -> None:
    scripts = {"test": " && ".join(["npm run test", "npm run unit"] * 400), "unit": "tape a.js"}
    write(tmp_path / "node", {"package.json": json.dumps({"scripts": scripts})})
    assert detect(tmp_path / "node").test == "npx tape a.js"
    itself = '{include-group = "test"}, ' * 400
    groups = f'[dependency-groups]\ntest = [{itself}"six"]\n'
    write(tmp_path / "python", {"pyproject.toml": groups})
    assert detect(tmp_path / "python").prepare[-1].endswith("pytest six")


@pytest.mark.parametrize("entries", ["5", "'six'", "{six = 1}", "[1, [2], {}]", "['--index-url=x', ' -r y']"])
def test_a_group_that_holds_no_requirements_adds_none(tmp_path: Path, entries: str) -> None:
    write(tmp_path, {"pyproject.toml": f"[dependency-groups]\ntest = {entries}\n"})
    assert detect(tmp_path).prepare[-1].endswith("install -q pytest")


@pytest.mark.parametrize(
    "words", ["\ud800", "\n[agent]\n", "\x1b[2J", "\u202e", "\u200b", "\U000e0041", "\x9b"]
)
def test_nothing_that_a_script_says_is_hidden_in_what_init_writes(tmp_path: Path, words: str) -> None:
    package = {"scripts": {"test": f"tape '{words}'"}}
    write(tmp_path, {"package.json": json.dumps(package)})
    text = starter(detect(tmp_path), "main", {})
    assert all(line.isprintable() for line in text.split("\n"))
    command = tomllib.loads(text)["project"]["test"]
    assert command == f"npx tape '{words}'".encode("utf-8", "replace").decode()


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
    assert tomllib.loads(starter(UNKNOWN, base, {}))["project"]["base"] == base


def test_a_package_manager_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    write(tmp_path, CASES["uv"][0])
    assert shutil.which("uv") is None
    assert detect(tmp_path).manager == "uv"
