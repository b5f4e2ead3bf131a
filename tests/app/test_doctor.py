from pathlib import Path

import pytest
from tests.app.ground import repository, write

from ironworks.app.doctor import Check, examine
from ironworks.app.place import find_place
from ironworks.app.trust import TrustStore

SECRET = "sk-test-doctor-1"


def checks(root: Path, text: str = "", state: Path | None = None, *, trust: bool = True) -> dict[str, Check]:
    write(root, {"ironworks.toml": text})
    if trust:
        TrustStore().record(root, text.encode())
    return {check.name: check for check in examine(find_place(root, state))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "r")


KEYLESS = '[providers.a]\nbase_url = "http://x"\nkey = "env:NOT_SET"\n'
GOOD = '[project]\ntest = "t {junit}"\n[agent]\nuse = "command"\ncommand = "true"\n'


def test_a_machine_and_a_repository_in_order(root: Path) -> None:
    found = checks(root, GOOD)
    for name in ("python", "git", "sqlite", "state", "configuration", "tests", "agent"):
        assert found[name].ok, found[name]


@pytest.mark.spec("CLI-21")
@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        ("", "tests", "{junit}"),
        ('[agent]\nuse = "comand"\n', "agent", "did you mean command?"),
        ("[netwrk]\n", "configuration", "did you mean network?"),
        ('[agent]\nuse = "command"\n', "agent", "set `command ="),
        ('[agent.review]\nuse = "command"\n', "agent", "set `command ="),
        ('[providers.a]\nbase_url = "http://x"\n', "agent", "set `model ="),
        ('[agent]\nuse = "builtin"\n', "providers", "[providers.NAME]"),
        (KEYLESS, "provider a", "export NOT_SET"),
        (
            KEYLESS + '[agent]\nuse = "command"\ncommand = "x"\nmodel = "a/m"\n',
            "provider a",
            "export NOT_SET",
        ),
        ('[network.headers."h.example"]\nX = "file:none"\n', "header X of h.example", "put the secret into"),
    ],
)
def test_what_is_missing_comes_with_the_exact_fix(root: Path, text: str, name: str, fix: str) -> None:
    check = checks(root, text)[name]
    assert not check.ok
    assert fix in check.fix


@pytest.mark.spec("CLI-21")
def test_a_file_that_is_not_trusted_is_named_with_the_command_that_helps(root: Path) -> None:
    check = checks(root, GOOD, trust=False)["configuration"]
    assert (check.ok, check.fix) == (False, "read it, then: ironworks trust")


def test_without_a_file_the_fix_is_to_make_one(root: Path) -> None:
    found = {check.name: check for check in examine(find_place(root))}
    assert (found["configuration"].ok, found["configuration"].fix) == (False, "ironworks init")
    assert "tests" not in found


def test_a_state_folder_that_cannot_be_made_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        (tmp_path / "file" / "x").mkdir()
    found = {check.name: check for check in examine(find_place(root, tmp_path / "file" / "x"))}
    assert not found["state"].ok
    assert "--state" in found["state"].fix


@pytest.mark.spec("CLI-33")
@pytest.mark.parametrize(
    "more", ["", '[providers.b]\nbase_url = "http://x"\n[agent.review]\nmodel = "b/m"\n']
)
def test_a_key_that_no_agent_needs_need_not_be_there(root: Path, more: str) -> None:
    found = checks(root, GOOD + KEYLESS + more)["provider a"]
    assert found.ok
    assert found.detail == "env:NOT_SET is not set; no agent here needs it"


@pytest.mark.spec("CF-9")
def test_a_key_that_is_there_is_not_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    found = checks(root, '[providers.a]\nbase_url = "http://x"\nkey = "env:KEY"\n')
    assert found["provider a"].ok
    assert SECRET not in str(found)
