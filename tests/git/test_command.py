import time
from pathlib import Path

import pytest

from ironworks.core.errors import GitError, RefusedError
from ironworks.git.command import Git


def is_gone(pid: int) -> bool:
    """Whether a process ended, within ten seconds."""
    for _ in range(1000):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def bound(user: Path) -> Git:
    return Git(user / ".git")


@pytest.mark.spec("GIT-15")
def test_a_call_that_takes_too_long_is_ended_with_all_its_children(bound: Git, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    alias = f"alias.slow=!sh -c 'echo $$ >\"{pid}\"; sleep 60; true'"
    with pytest.raises(GitError, match="no answer within"):
        bound.run("-c", alias, "slow", timeout_s=1)
    assert is_gone(int(pid.read_text()))


@pytest.mark.spec("GIT-15")
def test_a_read_that_takes_too_long_is_ended_too(bound: Git, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    alias = f"alias.slow=!sh -c 'echo $$ >\"{pid}\"; sleep 60; true'"
    with pytest.raises(GitError):
        bound.head("-c", alias, "slow", max_bytes=10, timeout_s=1)
    assert is_gone(int(pid.read_text()))


def test_a_failure_says_why(bound: Git) -> None:
    with pytest.raises(GitError, match="cat-file: fatal: Not a valid object name nonsense"):
        bound.run("cat-file", "-p", "nonsense")
    with pytest.raises(GitError, match="Not a valid object name nonsense"):
        bound.head("cat-file", "-p", "nonsense", max_bytes=10)


def test_exit_codes_that_are_expected_are_no_failure(bound: Git) -> None:
    assert bound.run("symbolic-ref", "--quiet", "refs/heads/none", ok=(0, 1)) == b""


def test_only_the_wanted_bytes_are_read(bound: Git) -> None:
    assert bound.head("cat-file", "-p", "main:a", max_bytes=5) == b"one\nt"
    assert bound.head("cat-file", "-p", "main:a", max_bytes=500) == b"one\ntwo\nthree\n"


def test_a_zero_byte_in_an_argument_is_refused(bound: Git) -> None:
    with pytest.raises(RefusedError, match="zero byte"):
        bound.run("cat-file", "-p", "main:a\0b")


@pytest.mark.spec("GIT-2")
def test_the_users_own_configuration_has_no_say(
    bound: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[test]\n\tkey = from-home\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "test.other")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "from-environment")
    assert bound.run("config", "--get-regexp", "^test", ok=(0, 1)) == b""


def test_a_missing_git_is_an_error_with_a_hint(bound: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitError) as caught:
        bound.run("version")
    assert "2.39" in caught.value.hint
