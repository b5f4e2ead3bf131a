import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.ground import git, repository, write

from ironworks.app.place import default_state, factory_pid, find_place, hold_lock, make_state, options_for
from ironworks.core.errors import BusyError, ConfigError, RefusedError


@pytest.mark.spec("CF-1")
def test_a_place_is_found_from_anywhere_inside_the_checkout(tmp_path: Path) -> None:
    root = repository(tmp_path / "a b", {"deep/er/file.txt": "x"})
    found = find_place(root / "deep" / "er" / "file.txt")
    assert (found.root, found.git_dir, found.bare) == (root, root / ".git", False)
    assert found == find_place(root) == find_place(root / ".git")


@pytest.mark.spec("CF-1")
def test_a_bare_repository_is_a_place(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    found = find_place(tmp_path / "bare.git")
    assert (found.root, found.git_dir, found.bare) == (tmp_path / "bare.git", tmp_path / "bare.git", True)


@pytest.mark.spec("CF-1")
def test_a_linked_work_tree_shares_the_state_of_its_repository(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    linked, main = find_place(tmp_path / "linked"), find_place(root)
    assert linked.root == tmp_path / "linked"
    assert (linked.git_dir, linked.state) == (main.git_dir, main.state)


def test_outside_of_any_repository_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in no git repository") as caught:
        find_place(tmp_path)
    assert "--repository" in caught.value.hint


def test_a_git_file_that_names_a_stranger_s_repository_is_refused(tmp_path: Path) -> None:
    victim = repository(tmp_path / "victim")
    write(tmp_path / "trap", {".git": f"gitdir: {victim / '.git'}\n"})
    with pytest.raises(RefusedError):
        find_place(tmp_path / "trap")


@pytest.mark.spec("CF-2")
def test_two_repositories_of_one_name_have_two_states(tmp_path: Path, home: Path) -> None:
    one, two = (find_place(repository(tmp_path / name / "same")) for name in ("x", "y"))
    assert one.state != two.state
    assert one.state.is_relative_to(home / ".local" / "state" / "ironworks")
    assert one.state.name.startswith("same-")


@pytest.mark.spec("CF-2")
def test_the_state_folder_follows_xdg_and_ignores_a_relative_one(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert default_state(tmp_path / "r" / ".git").parent == tmp_path / "xdg" / "ironworks"
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    assert default_state(tmp_path / "r" / ".git").is_relative_to(home)


@pytest.mark.parametrize("name", ["-rf", "new\nline", "emoji 🙂", "..", "a" * 200, "e\u0301"])
def test_a_repository_of_any_name_gets_a_plain_state_folder(tmp_path: Path, name: str) -> None:
    state = default_state(tmp_path / name / ".git")
    assert state.name.isascii()
    assert state.name[0].isalnum()
    assert len(state.name) <= 49


def test_the_state_folder_is_private(tmp_path: Path) -> None:
    place = find_place(repository(tmp_path / "r"))
    make_state(place)
    assert place.state.stat().st_mode & 0o077 == 0
    assert place.logs.is_dir()


def test_a_state_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    write(tmp_path, {"state": "x"})
    with pytest.raises(ConfigError, match="cannot be made"):
        make_state(find_place(repository(tmp_path / "r"), tmp_path / "state"))


def holding(
    state: Path, ready: "multiprocessing.synchronize.Event", end: "multiprocessing.synchronize.Event"
) -> None:
    with hold_lock(state):
        ready.set()
        end.wait(30)


@pytest.mark.spec("CF-3")
def test_a_second_factory_is_refused_and_told_the_process_of_the_first(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    child = context.Process(target=holding, args=(tmp_path, ready, end))
    child.start()
    try:
        assert ready.wait(30)
        assert factory_pid(tmp_path) == child.pid
        with pytest.raises(BusyError, match=str(child.pid)), hold_lock(tmp_path, patience_s=0.1):
            raise AssertionError("the lock was given twice")
    finally:
        end.set()
        child.join(30)
    assert factory_pid(tmp_path) is None


@pytest.mark.spec("CF-3")
def test_a_killed_factory_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\nfrom ironworks.app.place import hold_lock\n"
        "with hold_lock(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60)
    assert done.returncode == -9
    assert factory_pid(tmp_path) is None
    with hold_lock(tmp_path):
        assert factory_pid(tmp_path) == os.getpid()


def test_a_suggested_command_names_the_place_only_where_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "a b")
    monkeypatch.chdir(root)
    assert options_for(find_place(root)) == ""
    assert options_for(find_place(root, tmp_path / "st")) == f" --state {tmp_path / 'st'}"
    monkeypatch.chdir(tmp_path)
    assert options_for(find_place(root)) == f" --repository '{root}'"
