import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sandbox.inside.conftest import Workplace, plain_git

STRANGE = ["-rf", "new\nline", "e\u0301🔨", os.fsdecode(b"\xff\xfe"), "n" * 255, ":x", '"q"', "b\\s", " "]


def test_nothing_done_gives_the_base(place: Workplace) -> None:
    captured = place.capture()
    assert (captured.commit, captured.ghost, captured.notes) == (place.base, False, ())


@pytest.mark.spec("GIT-16")
def test_every_kind_of_change_is_captured_as_it_is_on_disk(place: Workplace) -> None:
    work = place.work
    (work / "new").write_bytes(b"\x00\xff\r\n")
    (work / "a").write_text("edited\n")
    (work / "folder" / "b").unlink()
    (work / "run").chmod(0o644)
    (work / "crlf.txt").chmod(0o755)
    (work / "link").unlink()
    (work / "link").write_text("a file now")
    (work / "tracked.log").write_text("edited\n")
    (work / "dangling").symlink_to("/nonexistent/\udcff")
    (work / "folder-link").symlink_to("folder")
    (work / "build").mkdir()
    (work / "build" / "out").write_text("ignored")
    (work / "x.log").write_text("ignored")
    captured = place.capture()
    assert captured.ghost
    assert captured.notes == ()
    assert place.captured_files(captured) == place.disk("build/out", "x.log")
    assert place.depot.parents(captured.commit) == (place.base,)


@pytest.mark.spec("GIT-16")
def test_files_and_folders_that_changed_places_are_captured(place: Workplace) -> None:
    shutil.rmtree(place.work / "folder")
    (place.work / "folder").write_text("a file")
    (place.work / "a").unlink()
    (place.work / "a").mkdir()
    (place.work / "a" / "inside").write_text("x")
    (place.work / "run").unlink()
    (place.work / "run").symlink_to("a")
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()


@pytest.mark.spec("GIT-7")
def test_names_of_any_bytes_are_captured(place: Workplace) -> None:
    for name in STRANGE:
        (place.work / name).write_bytes(os.fsencode(name))
        (place.work / "deep" / name).mkdir(parents=True)
        (place.work / "deep" / name / name).write_text("x")
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()


@pytest.mark.spec("GIT-16")
def test_ignored_files_are_captured_only_if_tracked(place: Workplace) -> None:
    (place.work / "node_modules").mkdir()
    (place.work / "node_modules" / "kept").write_text("committed by force")
    (place.work / "node_modules" / "dropped").write_text("x")
    (place.work / "forced.log").write_text("only added")
    place.git("add", "--force", "node_modules/kept")
    place.git("commit", "--quiet", "-m", "one")
    place.git("add", "--force", "forced.log")
    (place.work / "tracked.log").unlink()
    captured = place.capture()
    assert place.captured_files(captured) == place.disk("node_modules/dropped")
    assert "forced.log" in place.captured_files(captured)


@pytest.mark.spec("GIT-16")
def test_a_tracked_path_behind_a_symbolic_link_is_gone(place: Workplace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("not of the work tree")
    shutil.rmtree(place.work / "folder")
    (place.work / "folder").symlink_to(outside)
    captured = place.capture()
    assert place.captured_files(captured)["folder"] == ("120000", os.fsencode(outside))
    assert "folder/b" not in place.captured_files(captured)


@pytest.mark.spec("GIT-17")
def test_commits_are_kept_and_what_is_left_over_becomes_one_more(place: Workplace) -> None:
    (place.work / "a").write_text("committed\n")
    place.git("commit", "--quiet", "-am", "mine")
    head = place.git("rev-parse", "HEAD")
    captured = place.capture()
    assert (captured.commit, captured.ghost) == (head, False)
    (place.work / "b").write_text("left\n")
    captured = place.capture()
    assert captured.ghost
    assert place.depot.parents(captured.commit) == (head,)
    assert place.depot.git.run("log", "-1", "--format=%s", captured.commit) == b"Fix it\n"


@pytest.mark.spec("GIT-17")
@pytest.mark.parametrize("how", ["amended", "orphan"])
def test_rewritten_history_is_squashed_onto_the_base(place: Workplace, how: str) -> None:
    (place.work / "a").write_text("changed\n")
    if how == "amended":
        place.git("commit", "--quiet", "--amend", "-am", "rewritten")
    else:
        place.git("checkout", "--quiet", "--orphan", "new")
        place.git("commit", "--quiet", "-am", "root")
    captured = place.capture()
    assert place.depot.parents(captured.commit) == (place.base,)
    assert place.captured_files(captured) == place.disk()
    assert not captured.ghost
    assert any("squashed" in note for note in captured.notes)


@pytest.mark.spec("GIT-17")
def test_a_head_that_is_detached_packed_or_on_another_branch_is_found(place: Workplace) -> None:
    (place.work / "a").write_text("changed\n")
    place.git("checkout", "--quiet", "-b", "feature/x")
    place.git("commit", "--quiet", "-am", "mine")
    head = place.git("rev-parse", "HEAD")
    place.git("pack-refs", "--all")
    place.git("gc", "--quiet")
    assert place.capture().commit == head
    place.git("checkout", "--quiet", "--detach")
    assert place.capture().commit == head


def test_merges_are_kept(place: Workplace) -> None:
    place.git("checkout", "--quiet", "-b", "side")
    (place.work / "side").write_text("x")
    place.git("add", "-A")
    place.git("commit", "--quiet", "-m", "side")
    place.git("checkout", "--quiet", "work")
    (place.work / "a").write_text("changed\n")
    place.git("commit", "--quiet", "-am", "mine")
    place.git("merge", "--quiet", "-m", "merged", "side")
    captured = place.capture()
    assert captured.commit == place.git("rev-parse", "HEAD")
    assert len(place.depot.parents(captured.commit)) == 2


def test_a_merge_left_unfinished_is_captured_and_said(place: Workplace) -> None:
    place.git("checkout", "--quiet", "-b", "side")
    (place.work / "a").write_text("side\n")
    place.git("commit", "--quiet", "-am", "side")
    place.git("checkout", "--quiet", "work")
    (place.work / "a").write_text("mine\n")
    place.git("commit", "--quiet", "-am", "mine")
    with pytest.raises(RuntimeError):
        place.git("merge", "side")
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()
    assert "<<<<<<<" in place.captured_files(captured)["a"][1].decode()
    assert "the worker left a merge unfinished" in captured.notes


@pytest.mark.spec("GIT-20")
def test_a_repository_inside_is_captured_as_plain_files(place: Workplace) -> None:
    for name, commits in (("empty", False), ("full", True), ("added", True)):
        inner = place.work / name
        inner.mkdir()
        plain_git("init", "--quiet", cwd=inner)
        (inner / "file").write_text(name)
        (inner / ".gitignore").write_text("*.tmp\n")
        (inner / "x.tmp").write_text("ignored")
        if commits:
            plain_git("add", "-A", cwd=inner)
            plain_git("commit", "--quiet", "-m", "inner", cwd=inner)
    place.git("add", "added")
    place.git("commit", "--quiet", "-m", "a gitlink by accident")
    captured = place.capture()
    ignored = [f"{name}/x.tmp" for name in ("empty", "full", "added")]
    assert place.captured_files(captured) == place.disk(*ignored)
    assert sum("a repository of its own" in note for note in captured.notes) == 3


@pytest.mark.spec("GIT-20")
def test_a_submodule_of_the_base_stays_one(empty_place: Workplace) -> None:
    plain_git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=empty_place.user)
    head = plain_git("rev-parse", "HEAD", cwd=empty_place.user)
    for name in ("kept", "gone", "filled", "populated"):
        plain_git("update-index", "--add", "--cacheinfo", f"160000,{head},{name}", cwd=empty_place.user)
        (empty_place.user / name).mkdir()
        plain_git("init", "--quiet", cwd=empty_place.user / name)
        plain_git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=empty_place.user / name)
    place = empty_place.start()
    assert place.capture().commit == place.base
    (place.work / "gone").rmdir()
    (place.work / "filled" / "file").write_text("x")
    plain_git("init", "--quiet", cwd=place.work / "populated")
    (place.work / "populated" / "file").write_text("x")
    captured = place.capture()
    modes = {path: entry.mode for path, entry in place.depot.files(captured.commit).items()}
    assert modes == {"kept": "160000", "populated": "160000", "filled/file": "100644"}
    assert any("filled" in note for note in captured.notes)


def program(canary: Path) -> Path:
    path = canary.parent / "trap"
    path.write_text(f'#!/bin/sh\necho ran >> "{canary}"\necho converted\n')
    path.chmod(0o755)
    return path


def set_config(*names: str) -> Callable[[Workplace, Path], None]:
    def arm(place: Workplace, canary: Path) -> None:
        for name in names:
            place.git("config", name, str(program(canary)))

    return arm


def set_filter(place: Workplace, canary: Path) -> None:
    set_config("filter.evil.clean", "filter.evil.process")(place, canary)
    (place.work / ".gitattributes").write_text("* filter=evil\n")
    (place.work / ".git" / "info" / "attributes").write_text("* filter=evil\n")


def set_hooks(place: Workplace, canary: Path) -> None:
    (place.work / ".git" / "hooks").mkdir(exist_ok=True)
    for name in ("pre-commit", "post-index-change", "reference-transaction", "commit-msg", "post-commit"):
        (place.work / ".git" / "hooks" / name).symlink_to(program(canary))


def set_include(place: Workplace, canary: Path) -> None:
    (canary.parent / "included").write_text(f"[core]\n\tfsmonitor = {program(canary)}\n")
    place.git("config", "include.path", str(canary.parent / "included"))


@pytest.mark.spec("GIT-18")
@pytest.mark.parametrize(
    "arm",
    [
        set_config("core.fsmonitor"),
        set_config("core.sshCommand", "core.pager", "core.editor", "gpg.program", "core.fsmonitor"),
        set_filter,
        set_hooks,
        set_include,
    ],
)
def test_nothing_an_agent_configured_is_run(
    place: Workplace, tmp_path: Path, arm: Callable[[Workplace, Path], None]
) -> None:
    canary = tmp_path / "traps" / "canary"
    canary.parent.mkdir()
    (place.work / "a").write_text("committed\n")
    place.git("commit", "--quiet", "-am", "mine")
    arm(place, canary)
    (place.work / "a").write_text("edited\r\n")
    canary.unlink(missing_ok=True)
    captured = place.capture()
    assert not canary.exists()
    assert place.captured_files(captured) == place.disk()
    place.place(captured.commit)
    assert not canary.exists()
    arm(place, canary)
    (place.work / "a").write_text("edited again\r\n")
    # A filter that answers nonsense may make git fail.
    with suppress(RuntimeError):
        place.git("add", "-A")
        place.git("commit", "--quiet", "-m", "x")
    assert canary.exists(), "the trap does not work, so that it proves nothing"


@pytest.mark.spec("GIT-18")
def test_no_attribute_converts_a_file(place: Workplace) -> None:
    text = "* text=auto eol=crlf ident working-tree-encoding=UTF-16\n"
    (place.work / ".gitattributes").write_text(text)
    (place.work / ".git" / "info" / "attributes").write_text(text)
    (place.work / "ident").write_bytes(b"$Id: 123$ \r\n\n")
    place.git("config", "core.autocrlf", "true")
    place.git("config", "core.fileMode", "false")
    (place.work / "a").chmod(0o755)
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()


@pytest.mark.spec("GIT-18")
def test_no_setting_hides_a_change(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    place.git("update-index", "--assume-unchanged", "a")
    place.git("update-index", "--skip-worktree", "run")
    (place.work / ".git" / "info" / "exclude").write_text("*\n")
    (tmp_path / "excludes").write_text("*\n")
    place.git("config", "core.excludesFile", str(tmp_path / "excludes"))
    place.git("config", "core.worktree", str(tmp_path / "other"))
    place.git("config", "core.sparseCheckout", "true")
    (place.work / ".git" / "info" / "sparse-checkout").write_text("/nothing\n")
    for name in ("a", "run", "new"):
        (place.work / name).write_text("changed\n")
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()


def dot_git(place: Workplace) -> Path:
    return place.work / ".git"


def break_head(place: Workplace) -> None:
    (dot_git(place) / "HEAD").write_bytes(b"\xff" * 10_000)


def break_objects(place: Workplace) -> None:
    for path in (dot_git(place) / "objects").glob("??/*"):
        path.chmod(0o644)
        path.write_bytes(b"garbage")


def drop_objects(place: Workplace) -> None:
    shutil.rmtree(dot_git(place) / "objects")


def link_to_nowhere(place: Workplace) -> None:
    shutil.rmtree(dot_git(place))
    dot_git(place).symlink_to("/nonexistent")


def link_to_root(place: Workplace) -> None:
    shutil.rmtree(dot_git(place))
    dot_git(place).symlink_to("/")


def file_to_nowhere(place: Workplace) -> None:
    shutil.rmtree(dot_git(place))
    dot_git(place).write_text("gitdir: /nonexistent\n")


def fifo(place: Workplace) -> None:
    shutil.rmtree(dot_git(place))
    os.mkfifo(dot_git(place))


def fifo_head(place: Workplace) -> None:
    (dot_git(place) / "HEAD").unlink()
    os.mkfifo(dot_git(place) / "HEAD")


def fifo_index(place: Workplace) -> None:
    (dot_git(place) / "index").unlink()
    os.mkfifo(dot_git(place) / "index")


def loop(place: Workplace) -> None:
    (dot_git(place) / "HEAD").write_text("ref: refs/heads/loop\n")
    (dot_git(place) / "refs" / "heads" / "loop").write_text("ref: refs/heads/loop\n")


def escape(place: Workplace) -> None:
    (dot_git(place) / "HEAD").write_text("ref: ../../../../../../etc/passwd\n")


def unknown_commit(place: Workplace) -> None:
    (dot_git(place) / "HEAD").write_text("a" * 40 + "\n")


def option(place: Workplace) -> None:
    (dot_git(place) / "HEAD").write_text("--all\n")


def remove_all(place: Workplace) -> None:
    shutil.rmtree(dot_git(place))


def bad_commit(place: Workplace) -> None:
    """A commit whose tree holds `.git`, as only a forger makes it."""
    blob = plain_git("hash-object", "-w", "--stdin", cwd=place.work, stdin=b"x")
    body = b"100644 .git\0" + bytes.fromhex(blob)
    args = ("hash-object", "-t", "tree", "-w", "--stdin", "--literally")
    tree = plain_git(*args, cwd=place.work, stdin=body)
    commit = place.git("commit-tree", "-p", place.base, "-m", "forged", tree)
    (dot_git(place) / "HEAD").write_text(commit + "\n")


@pytest.mark.spec("GIT-19")
@pytest.mark.parametrize(
    "damage",
    [
        break_head,
        break_objects,
        drop_objects,
        link_to_nowhere,
        link_to_root,
        file_to_nowhere,
        fifo,
        fifo_head,
        loop,
        escape,
        unknown_commit,
        option,
        remove_all,
        bad_commit,
    ],
)
def test_whatever_became_of_the_repository_the_files_are_captured(
    place: Workplace, damage: Callable[[Workplace], None]
) -> None:
    (place.work / "a").write_text("committed\n")
    place.git("commit", "--quiet", "-am", "mine")
    (place.work / "new").write_text("left\n")
    damage(place)
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()
    assert place.depot.parents(captured.commit) == (place.base,)
    assert captured.ghost
    assert any("put onto the base" in note for note in captured.notes)
    place.place(captured.commit)
    assert place.git("status", "--porcelain") == ""


@pytest.mark.spec("GIT-19")
@pytest.mark.parametrize("damage", ["garbage", "fifo", "missing", "lock"])
def test_whatever_became_of_the_index_all_is_captured(place: Workplace, damage: str) -> None:
    (place.work / "a").write_text("committed\n")
    place.git("commit", "--quiet", "-am", "mine")
    head = place.git("rev-parse", "HEAD")
    (place.work / "new").write_text("left\n")
    index = dot_git(place) / "index"
    if damage == "fifo":
        fifo_index(place)
    elif damage == "garbage":
        index.write_bytes(os.urandom(1000))
    elif damage == "missing":
        index.unlink()
    else:
        (dot_git(place) / "index.lock").touch()
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()
    assert place.depot.parents(captured.commit) == (head,)
    place.place(captured.commit)
    assert place.git("status", "--porcelain") == ""


def test_a_linked_work_tree_of_the_agents_own_keeps_its_history(place: Workplace) -> None:
    elsewhere = place.home.parent / "elsewhere"
    place.git("clone", "--quiet", ".", elsewhere)
    linked = place.home.parent / "linked"
    plain_git("worktree", "add", "--quiet", "-b", "linked", linked, "origin/work", cwd=elsewhere)
    shutil.rmtree(dot_git(place))
    shutil.copy(linked / ".git", dot_git(place))
    (place.work / "a").write_text("committed\n")
    place.git("add", "-A")
    place.git("commit", "--quiet", "-m", "mine")
    captured = place.capture()
    assert captured.commit == place.git("rev-parse", "HEAD")


@pytest.mark.spec("GIT-21")
def test_the_same_disk_gives_the_same_commit(place: Workplace) -> None:
    (place.work / "new").write_text("x")
    assert place.capture() == place.capture()


@pytest.mark.spec("GIT-22")
def test_what_cannot_be_captured_is_named(place: Workplace) -> None:
    os.mkfifo(place.work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(place.work / "socket"))
    for name in (".GIT", "git~1", ".git ", "\u200c.git", "x\\.git"):
        (place.work / "folder" / name).write_text("x")
    captured = place.capture()
    assert captured.commit == place.base
    named = {note.partition(": ")[0] for note in captured.notes}
    assert {"pipe", "socket", "folder/.GIT", "folder/git~1", "folder/.git ", "folder/x\\.git"} <= named
    assert len(captured.notes) == 7


@pytest.mark.spec("GIT-16")
def test_files_and_folders_that_an_agent_locked_are_captured(place: Workplace) -> None:
    (place.work / "locked").mkdir()
    (place.work / "locked" / "file").write_text("x")
    (place.work / "locked" / "file").chmod(0)
    (place.work / "locked").chmod(0)
    assert "locked/file" in place.captured_files(place.capture())


def test_too_much_is_refused_with_a_reason(place: Workplace) -> None:
    with (place.work / "huge").open("wb") as file:
        file.truncate(3_000_000)
    answer, bundle = place.answer(max_bytes=2_000_000)
    assert "3000000 bytes, more than 2000000" in answer["failed"]
    assert bundle == b""
    assert place.captured_files(place.capture())["huge"][1] == bytes(3_000_000)


def test_trees_that_multiply_into_billions_of_files_cost_the_history_only(place: Workplace) -> None:
    blob = plain_git("hash-object", "-w", "--stdin", cwd=place.work, stdin=b"x")
    lines = "".join(f"100644 blob {blob}\tf{number:02}\n" for number in range(50))
    tree = plain_git("mktree", cwd=place.work, stdin=lines.encode())
    for _ in range(8):
        lines = "".join(f"040000 tree {tree}\td{number:02}\n" for number in range(50))
        tree = plain_git("mktree", cwd=place.work, stdin=lines.encode())
    commit = place.git("commit-tree", "-p", place.base, "-m", "bomb", tree)
    (dot_git(place) / "HEAD").write_text(commit + "\n")
    (place.work / "new").write_text("x")
    captured = place.capture()
    assert place.captured_files(captured) == place.disk()
    assert any("too many files" in note for note in captured.notes)


def test_deep_folders_are_captured(place: Workplace) -> None:
    deep = place.work
    for _ in range(100):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    assert place.captured_files(place.capture()) == place.disk()


PATHS = st.lists(st.sampled_from(["a", "x.log", *STRANGE]), min_size=1, max_size=3).map("/".join)
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.binary(max_size=20)),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "/etc", "..", "\udcff"])),
    st.tuples(st.just("run"), PATHS, st.booleans()),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("commit"), st.just(""), st.none()),
)


def act(place: Workplace, verb: str, name: str, value: object) -> None:
    """One step of an agent; what does not fit the disk as it is, does not happen."""
    path = place.work / name
    if verb == "commit":
        place.git("add", "-A")
        place.git("commit", "--quiet", "--allow-empty", "-m", "x")
    elif verb == "remove":
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    elif verb == "run" and path.is_file() and not path.is_symlink():
        path.chmod(0o755 if value else 0o644)
    elif verb == "write" and not path.is_symlink():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else b"")
    elif verb == "link":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(str(value))


@pytest.mark.slow
@pytest.mark.spec("GIT-16")
@settings(max_examples=25)
@given(st.lists(STEPS, max_size=12))
def test_the_captured_tree_is_the_disk_whatever_was_done(steps: list[tuple[str, str, object]]) -> None:
    with TemporaryDirectory() as folder:
        place = Workplace(Path(folder))
        (place.user / "a").write_text("a")
        (place.user / "x.log").write_text("tracked")
        place.start()
        for step in steps:
            try:
                act(place, *step)
            except OSError:
                continue
        captured = place.capture()
        assert place.captured_files(captured) == place.disk()
        place.place(captured.commit)
        assert place.captured_files(captured) == place.disk()
