from pathlib import Path

import pytest

from ironworks.app.secret import Secrets, read_env_file
from ironworks.core.errors import ConfigError

KEY = "sk-test-0123456789"


@pytest.mark.spec("CF-9")
def test_a_variable_comes_from_the_environment_before_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"A={KEY}\nB='quoted value'\nexport C=plain # note\n")
    secrets = Secrets([tmp_path / ".env"], {"A": "from-environment"})
    assert [secrets(f"env:{name}") for name in "ABC"] == ["from-environment", "quoted value", "plain"]


@pytest.mark.spec("CF-9")
def test_a_file_is_read_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert Secrets([], {})(f"file:{tmp_path / 'key'}") == KEY


@pytest.mark.parametrize("reference", ["env:NONE", "file:/none/such", KEY, "env:", "file:", ""])
def test_what_is_missing_is_named_and_told_how_to_give(reference: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Secrets([], {}).resolve(reference)
    assert KEY not in caught.value.message + caught.value.hint


@pytest.mark.spec("CF-9")
@pytest.mark.parametrize("value", [f"{KEY}\r\nX-Evil: 1", f"{KEY}\x00", "", "  \n"])
def test_a_value_that_no_header_may_carry_is_refused_and_not_repeated(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Secrets([], {"A": value})("env:A")
    assert KEY not in str(caught.value) + caught.value.hint


@pytest.mark.spec("CF-8")
def test_an_env_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "else").write_text(f"A={KEY}\n")
    (tmp_path / ".env").symlink_to("else")
    with pytest.raises(ConfigError, match="symbolic link"):
        Secrets([tmp_path / ".env"], {})("env:A")


def test_a_secret_that_is_binary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text"):
        Secrets([], {})(f"file:{tmp_path / 'key'}")


def test_an_env_file_of_any_bytes_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe\n=x\nnot a name=1\nGOOD=1\n# C=2\n")
    assert read_env_file(tmp_path / ".env") == {"GOOD": "1"}
    assert read_env_file(tmp_path / "none") == {}
