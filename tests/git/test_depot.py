import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.git.conftest import GitCall, plain_git

from ironworks.core import crash
from ironworks.core.errors import GitError, MissingError, RefusedError
from ironworks.git.depot import Depot
from ironworks.git.tree import Blob, TreeEntry, decode

STRANGE = [
    "-rf",
    "new\nline",
    "a b'\"$(x)`;",
    "e\u0301",
    "🔨",
    decode(b"\xff\xfe"),
    "n" * 255,
    ":(top)x",
    '"quoted"',
    "back\\slash",
    "tab\there",
    "deep/" * 60 + "file",
    "~",
    ".gitignore",
]


class Killed(BaseException):
    """Stands for a SIGKILL at a crash point."""


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    crash.arm(None)


def killed_at(point: str, act: Callable[[], object]) -> bool:
    """Run `act`, killed at `point`; whether it got there."""

    def hook(name: str) -> None:
        if name == point:
            raise Killed

    crash.arm(hook)
    try:
        act()
    except Killed:
        return True
    finally:
        crash.arm(None)
    return False


def change(depot: Depot, base: str, message: str = "m", /, **files: bytes | None) -> str:
    """A commit on `base` with these files."""
    blobs = {path: None if data is None else Blob(data) for path, data in files.items()}
    return depot.commit(depot.write_tree(base, blobs), [base], message)


@pytest.mark.spec("GIT-4")
def test_sync_brings_the_base_and_the_factorys_refs_and_forgets_what_is_gone(
    user: Path, depot: Depot, git: GitCall
) -> None:
    for ref in ("refs/heads/ironworks/1", "refs/ironworks/claims/1", "refs/heads/other", "refs/tags/t"):
        git("update-ref", ref, "HEAD", cwd=user)
    base = depot.sync("main")
    assert base == git("rev-parse", "main", cwd=user)
    mirrored = {"refs/heads/main", "refs/heads/ironworks/1", "refs/ironworks/claims/1"}
    assert set(git("for-each-ref", "--format=%(refname)", cwd=depot.path).split()) == mirrored
    depot.set_ref("refs/attempts/1", base)
    git("update-ref", "-d", "refs/heads/ironworks/1", cwd=user)
    git("commit", "--quiet", "--amend", "-m", "rewritten", cwd=user)
    assert depot.sync("main") == git("rev-parse", "main", cwd=user) != base
    assert depot.resolve("refs/heads/ironworks/1") is None
    assert depot.resolve("refs/attempts/1") == base


@pytest.mark.spec("GIT-4")
@pytest.mark.parametrize("name", ["absent", "", "-x", "ma*n", "main..main", "../heads/main", "ma", "a\nb"])
def test_a_base_that_does_not_exist_is_missing(depot: Depot, name: str) -> None:
    with pytest.raises(MissingError, match="no branch"):
        depot.sync(name)


def test_a_branch_of_the_factory_itself_can_be_the_base(user: Path, depot: Depot, git: GitCall) -> None:
    git("update-ref", "refs/heads/ironworks/1", "HEAD", cwd=user)
    assert depot.sync("ironworks/1") == depot.sync("main")


@pytest.mark.spec("GIT-5")
def test_a_push_sets_a_ref_only_if_it_holds_what_is_expected(depot: Depot, base: str) -> None:
    ref = "refs/ironworks/claims/issue-1"
    one, two = (depot.commit(depot.tree_of(base), [], "claim", unique=True) for _ in range(2))
    assert not depot.push(ref, one, expected=two)
    assert depot.push(ref, None, expected=None)
    assert depot.remote_ref(ref) is None
    assert depot.push(ref, one, expected=None)
    assert not depot.push(ref, two, expected=None)
    assert not depot.push(ref, None, expected=None)
    assert depot.push(ref, two, expected=one)
    assert not depot.push(ref, one, expected=one)
    assert depot.remote_refs("refs/ironworks/claims/") == {ref: two}
    assert not depot.push(ref, None, expected=one)
    assert depot.push(ref, None, expected=two)
    assert depot.push(ref, None, expected=two), "it holds what is wanted already"
    assert depot.remote_refs("refs/ironworks/") == {}


@pytest.mark.spec("GIT-5")
def test_of_32_parallel_pushes_to_an_absent_ref_exactly_one_wins(tmp_path: Path, user: Path) -> None:
    depots = [Depot(tmp_path / f"depot-{number}", user) for number in range(4)]
    base = {depot.sync("main") for depot in depots}.pop()
    commits = [depots[number % 4].commit(f"{base}^{{tree}}", [], "c", unique=True) for number in range(32)]
    start = threading.Barrier(32)

    def push(number: int) -> bool:
        start.wait(60)
        return depots[number % 4].push("refs/ironworks/claims/x", commits[number], expected=None)

    with ThreadPoolExecutor(32) as pool:
        won = list(pool.map(push, range(32)))
    assert sum(won) == 1
    assert depots[0].remote_ref("refs/ironworks/claims/x") == commits[won.index(True)]


@pytest.mark.spec("GIT-5")
def test_parallel_pushes_to_different_refs_all_win(depot: Depot, base: str) -> None:
    commits = [depot.commit(depot.tree_of(base), [], "c", unique=True) for _ in range(16)]
    with ThreadPoolExecutor(8) as pool:
        pushed = pool.map(lambda n: depot.push(f"refs/ironworks/x/{n}", commits[n], expected=None), range(16))
    assert all(pushed)
    with ThreadPoolExecutor(8) as pool:
        gone = pool.map(lambda n: depot.push(f"refs/ironworks/x/{n}", None, expected=commits[n]), range(16))
    assert all(gone)
    assert depot.remote_refs("refs/ironworks/") == {}


@pytest.mark.spec("GIT-5")
def test_a_ref_that_cannot_be_written_is_an_error_and_no_lost_race(depot: Depot, base: str) -> None:
    assert depot.push("refs/ironworks/a", base, expected=None)
    with pytest.raises(GitError, match="cannot write refs/ironworks/a/b"):
        depot.push("refs/ironworks/a/b", base, expected=None)


@pytest.mark.parametrize(
    "ref",
    [
        "main",
        "refs",
        "refs/",
        "refs/x/../y",
        "refs/x/*",
        "refs/x y",
        "refs/.x",
        "refs/x.lock",
        "refs/x\n",
        "-d",
    ],
)
def test_a_name_that_is_no_ref_is_refused(depot: Depot, base: str, ref: str) -> None:
    for act in (
        lambda: depot.push(ref, base, expected=None),
        lambda: depot.set_ref(ref, base),
        lambda: depot.delete_ref(ref),
        lambda: depot.remote_ref(ref),
    ):
        with pytest.raises(RefusedError, match="no ref name"):
            act()


@pytest.mark.parametrize("ref", ["refs/ironworks/x", "refs/heads/ironworks/x"])
def test_a_ref_that_sync_would_prune_cannot_be_set_alone(depot: Depot, base: str, ref: str) -> None:
    with pytest.raises(RefusedError, match="mirrored"):
        depot.set_ref(ref, base)


def test_own_refs_are_set_and_deleted(depot: Depot, base: str) -> None:
    depot.set_ref("refs/attempts/1", base)
    depot.set_ref("refs/attempts/1", base)
    assert depot.resolve("refs/attempts/1") == base
    depot.delete_ref("refs/attempts/1")
    depot.delete_ref("refs/attempts/1")
    assert depot.resolve("refs/attempts/1") is None


@pytest.mark.spec("GIT-6")
@pytest.mark.parametrize("point", ["depot.before_push", "depot.after_push"])
def test_a_push_killed_anywhere_can_be_repeated(depot: Depot, base: str, point: str, disarmed: None) -> None:
    commit = depot.commit(depot.tree_of(base), [], "c", unique=True)
    assert killed_at(point, lambda: depot.push("refs/ironworks/x", commit, expected=None))
    assert depot.push("refs/ironworks/x", commit, expected=None)
    assert depot.remote_ref("refs/ironworks/x") == commit


@pytest.mark.spec("GIT-6")
@pytest.mark.parametrize("point", ["depot.before_admit", "depot.after_fetch", "depot.after_admit"])
def test_an_admission_killed_anywhere_can_be_repeated(
    depot: Depot, base: str, tmp_path: Path, user: Path, point: str, disarmed: None
) -> None:
    commit = change(depot, base, a=b"new")
    depot.bundle(commit, tmp_path / "bundle", exclude=[base])
    other = Depot(tmp_path / "other.git", user)
    other.sync("main")

    def admit() -> str:
        return other.admit(tmp_path / "bundle", base=base, ref="refs/attempts/1")

    assert killed_at(point, admit)
    assert admit() == admit() == commit == other.resolve("refs/attempts/1")
    assert other.read(commit, "a") == b"new"


@pytest.mark.parametrize(
    "rev", ["absent", "", "-x", "--all", "a" * 40, "main:a", "main\n", "HEAD", "@{u}", "main^{/x[}", "\udcff"]
)
def test_what_names_no_commit_resolves_to_nothing(depot: Depot, base: str, rev: str) -> None:
    assert depot.resolve(rev) is None
    if len(rev) != 40:
        with pytest.raises(MissingError):
            depot.parents(rev)


def test_commits_are_found_and_related(depot: Depot, base: str) -> None:
    one, two = change(depot, base, a=b"1"), change(depot, base, a=b"2")
    assert depot.resolve("main") == depot.resolve(base[:10]) == base
    assert depot.parents(one) == (base,)
    assert depot.parents(base) == ()
    assert depot.is_ancestor(base, one)
    assert depot.is_ancestor(one, one)
    assert not depot.is_ancestor(one, two)
    assert depot.merge_base(one, two) == base
    unrelated = depot.commit(depot.tree_of(base), [], "root")
    assert depot.merge_base(one, unrelated) is None
    with pytest.raises(GitError):
        depot.is_ancestor("a" * 40, one)


def test_files_are_read_as_they_are(depot: Depot, base: str) -> None:
    assert depot.read(base, "a") == b"one\ntwo\nthree\n"
    assert depot.read("main", "folder/b") == b"\x00\xff\r\n"
    assert depot.read(base, "link") == b"/etc/passwd"
    for path in ("absent", "folder", "folder/", "a/b", "", ".", "..", "./a", "../a", "/a", "a\0b", "a\nb"):
        assert depot.read(base, path) is None
    with pytest.raises(MissingError):
        depot.read("a" * 40, "a")


@pytest.mark.spec("GIT-10")
def test_a_file_larger_than_wanted_is_refused(depot: Depot, base: str) -> None:
    commit = change(depot, base, big=b"x" * 100_000)
    assert depot.read(commit, "big", max_bytes=100_000) == b"x" * 100_000
    with pytest.raises(RefusedError, match="100000 bytes"):
        depot.read(commit, "big", max_bytes=99_999)


@pytest.mark.spec("GIT-7")
def test_paths_of_any_bytes_survive(depot: Depot, base: str) -> None:
    tree = depot.write_tree(base, {path: Blob(os.fsencode(path)) for path in STRANGE})
    commit = depot.commit(tree, [base], "m")
    assert set(STRANGE) <= depot.files(commit).keys()
    assert {change.path for change in depot.changes(base, commit)} == set(STRANGE)
    assert [depot.read(commit, path) for path in STRANGE] == [os.fsencode(path) for path in STRANGE]
    assert depot.write_tree(commit, dict.fromkeys(STRANGE)) == depot.tree_of(base)


def test_files_are_listed_with_mode_and_size(depot: Depot, base: str) -> None:
    files = depot.files(base)
    facts = {path: (entry.mode, entry.size) for path, entry in files.items()}
    assert facts == {
        "a": ("100644", 14),
        "folder/b": ("100644", 4),
        "link": ("120000", 11),
        "run": ("100755", 10),
    }


def test_a_tree_is_written_from_nothing_from_a_tree_and_by_moving_entries(depot: Depot, base: str) -> None:
    files = depot.files(base)
    assert depot.write_tree(None, files) == depot.tree_of(base)
    assert depot.write_tree(None, {}) == depot.write_tree(base, dict.fromkeys(files))
    assert depot.write_tree(depot.tree_of(base), {"absent": None}) == depot.tree_of(base)
    assert depot.write_tree(None, {"absent": None}) == depot.write_tree(None, {})
    gitlink = depot.write_tree(None, {"sub": TreeEntry("160000", base)})
    assert depot.files(gitlink) == {"sub": TreeEntry("160000", base)}


def test_files_and_folders_take_each_others_place(depot: Depot, base: str) -> None:
    tree = depot.write_tree(base, {"a/inside": Blob(b"1"), "folder": Blob(b"2"), "folder/b": None})
    assert set(depot.files(tree)) == {"a/inside", "folder", "link", "run"}
    tree = depot.write_tree(base, {"folder": Blob(b"2")})
    assert set(depot.files(tree)) == {"a", "folder", "link", "run"}


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/config",
        "x/.git/hooks/y",
        ".GIT/x",
        "..",
        "x/../y",
        "/etc/passwd",
        "",
        "x//y",
        "x/",
        "a\0b",
    ],
)
def test_a_path_that_git_would_not_store_is_refused(depot: Depot, base: str, path: str) -> None:
    with pytest.raises(RefusedError):
        depot.write_tree(base, {path: Blob(b"x")})


@pytest.mark.parametrize("mode", ["040000", "160000", "100600", "", "x"])
def test_a_mode_that_is_none_is_refused(depot: Depot, base: str, mode: str) -> None:
    with pytest.raises(RefusedError, match="mode"):
        depot.write_tree(base, {"a": Blob(b"x", mode)})


@pytest.mark.spec("GIT-8")
def test_the_same_input_gives_the_same_commit(tmp_path: Path, user: Path, depot: Depot, base: str) -> None:
    other = Depot(tmp_path / "other.git", user)
    other.sync("main")
    assert change(depot, base, a=b"1") == change(other, base, a=b"1")
    assert change(depot, base, "x", a=b"1") != change(depot, base, "y", a=b"1")
    assert depot.commit(depot.tree_of(base), [], "root") == other.commit(other.tree_of(base), [], "root")


@pytest.mark.spec("GIT-8")
def test_a_unique_commit_is_never_made_twice(depot: Depot, base: str) -> None:
    made = {depot.commit(depot.tree_of(base), [base], "claim", unique=True) for _ in range(5)}
    assert len(made) == 5


def test_a_commit_is_dated_like_its_newest_parent(user: Path, depot: Depot, base: str, git: GitCall) -> None:
    dates = {"GIT_COMMITTER_DATE": "2031-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2031-01-01T00:00:00Z"}
    git("commit", "--quiet", "--allow-empty", "-m", "later", cwd=user, env=dates)
    later = depot.sync("main")
    merged = depot.commit(depot.tree_of(base), [base, later], "merge")
    assert git("show", "-s", "--format=%cI", merged, cwd=depot.path).startswith("2031-01-01")


@pytest.mark.parametrize(
    ("author", "message"),
    [
        ("Ann <ann@localhost>", "title\n\nbody"),
        ("", ""),
        ("\u00e9 <\n>", "zero\0byte"),
        ("x\0y", "\udcff"),
        ("<<>>", "-m"),
    ],
)
def test_any_author_and_message_make_a_commit(depot: Depot, base: str, author: str, message: str) -> None:
    commit = depot.commit(depot.tree_of(base), [base], message, author=author)
    assert depot.parents(commit) == (base,)


def test_changes_tell_status_and_modes(depot: Depot, base: str) -> None:
    tree = depot.write_tree(
        base,
        {
            "a": Blob(b"changed"),
            "new": Blob(b"", "100755"),
            "folder/b": None,
            "link": Blob(b"a file now"),
            "run": Blob(b"#!/bin/sh\n"),
        },
    )
    found = {
        change.path: (change.status, change.old_mode, change.new_mode) for change in depot.changes(base, tree)
    }
    assert found == {
        "a": ("M", "100644", "100644"),
        "new": ("A", "000000", "100755"),
        "folder/b": ("D", "100644", "000000"),
        "link": ("T", "120000", "100644"),
        "run": ("M", "100755", "100644"),
    }


@pytest.mark.spec("GIT-10")
def test_a_diff_is_cut_where_told_and_says_so(depot: Depot, base: str) -> None:
    commit = change(depot, base, big=b"line\n" * 100_000, a=b"one\n2\nthree\n")
    whole = depot.diff(base, commit, max_bytes=10_000_000)
    assert "-two\n+2\n" in whole
    assert whole.count("+line\n") == 100_000
    cut = depot.diff(base, commit, max_bytes=1000)
    assert cut.startswith(whole[:1000])
    assert cut.endswith("[the diff is cut here, after 1000 bytes]\n")
    assert depot.diff(base, base) == ""
    assert "Binary files" in depot.diff(base, change(depot, base, x=b"\0"))


def test_work_on_different_files_merges_cleanly(depot: Depot, base: str) -> None:
    one, two = change(depot, base, new=b"1"), change(depot, base, a=b"2")
    merge = depot.merge(one, two)
    assert merge.clean
    assert merge.conflicts == ()
    assert depot.read(merge.tree, "new") == b"1"
    assert depot.read(merge.tree, "a") == b"2"


@pytest.mark.spec("GIT-9")
def test_conflicts_are_told_apart_and_come_with_all_three_versions(depot: Depot, base: str) -> None:
    base = change(depot, base, both=b"1\n", gone=b"long enough\nto be told apart\n", bin=b"\0a", file=b"f\n")
    ours = depot.write_tree(
        base,
        {
            "both": Blob(b"2\n"),
            "added\n": Blob(b"x\n"),
            "gone": None,
            "bin": Blob(b"\0b"),
            "link": Blob(b"/ours", "120000"),
            "file": None,
            "file/x": Blob(b"y"),
        },
    )
    theirs = depot.write_tree(
        base,
        {
            "both": Blob(b"3\n"),
            "added\n": Blob(b"y\n"),
            "gone": Blob(b"changed\nto be told apart\n"),
            "bin": Blob(b"\0c"),
            "link": Blob(b"/theirs", "120000"),
            "file": Blob(b"g\n"),
        },
    )
    merge = depot.merge(depot.commit(ours, [base], "ours"), depot.commit(theirs, [base], "theirs"))
    assert not merge.clean
    found = {item.path: (item.kind, item.base, item.ours, item.theirs) for item in merge.conflicts}
    assert found.pop("both") == ("content", b"1\n", b"2\n", b"3\n")
    assert found.pop("added\n") == ("add/add", None, b"x\n", b"y\n")
    gone = (b"long enough\nto be told apart\n", None, b"changed\nto be told apart\n")
    assert found.pop("gone") == ("modify/delete", *gone)
    assert found.pop("bin") == ("binary", b"\0a", b"\0b", b"\0c")
    assert found.pop("link") == ("other", b"/etc/passwd", b"/ours", b"/theirs")
    assert {kind for kind, *_ in found.values()} == {"other"}


@pytest.mark.spec("GIT-10")
def test_a_conflict_in_a_file_too_large_to_load_is_handed_on(depot: Depot, base: str) -> None:
    huge = b"x" * (17 * 1024 * 1024)
    base = change(depot, base, a=huge)
    merge = depot.merge(change(depot, base, a=huge + b"1"), change(depot, base, a=huge + b"2"))
    (conflict,) = merge.conflicts
    assert (conflict.path, conflict.kind, conflict.ours) == ("a", "other", None)


@pytest.mark.spec("GIT-14")
def test_parallel_merges_admissions_and_syncs_all_succeed(
    depot: Depot, base: str, tmp_path: Path, user: Path
) -> None:
    source = Depot(tmp_path / "source.git", user)
    source.sync("main")

    def deliver(number: int) -> str:
        commit = change(source, base, "m", **{f"file-{number}": b"x" * number})
        bundle = tmp_path / f"bundle-{number}"
        source.bundle(commit, bundle, exclude=[base])
        admitted = depot.admit(bundle, base=base, ref=f"refs/attempts/{number}")
        depot.sync("main")
        merge = depot.merge(admitted, change(depot, base, a=b"%d" % number))
        return depot.commit(merge.tree, [admitted], "merged")

    with ThreadPoolExecutor(8) as pool:
        merged = list(pool.map(deliver, range(16)))
    assert [depot.read(commit, "a") for commit in merged] == [b"%d" % number for number in range(16)]
    assert len(depot.git.run("for-each-ref", "refs/attempts").splitlines()) == 16


@pytest.mark.spec("GIT-11")
def test_a_base_repository_stands_alone(
    depot: Depot, base: str, tmp_path: Path, user: Path, git: GitCall
) -> None:
    later = change(depot, base, a=b"later")
    path = tmp_path / "bases" / "base.git"
    depot.base_repository(later, path)
    depot.base_repository(later, path)
    shutil.rmtree(depot.path)
    shutil.rmtree(user)
    git("fsck", "--strict", "--full", cwd=path)
    assert git("rev-list", "base", cwd=path).split() == [later, base]
    assert git("symbolic-ref", "HEAD", cwd=path) == "refs/heads/base"
    assert not (path / "objects" / "info" / "alternates").exists()
    assert not (path / "hooks").exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["base.git"]


@pytest.mark.spec("GIT-11")
def test_a_base_repository_is_complete_or_absent(depot: Depot, base: str, tmp_path: Path) -> None:
    path = tmp_path / "base.git"
    with pytest.raises(GitError):
        depot.base_repository("a" * 40, path)
    assert not path.exists()
    depot.base_repository(base, path)
    with pytest.raises(RefusedError, match="not"):
        depot.base_repository(change(depot, base, a=b"x"), path)


@pytest.mark.spec("GIT-14")
def test_several_may_make_the_same_repository_at_once(user: Path, tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def make(_: int) -> str:
        start.wait(60)
        depot = Depot(tmp_path / "depot.git", user)
        base = depot.sync("main")
        depot.base_repository(base, tmp_path / "base.git")
        return base

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make, range(8)))) == 1


def test_a_bundle_is_one_that_git_itself_accepts(user: Path, depot: Depot, base: str, tmp_path: Path) -> None:
    commit = change(depot, base, a=b"new")
    depot.bundle(commit, tmp_path / "bundle", exclude=[base])
    plain_git("bundle", "verify", "--quiet", tmp_path / "bundle", cwd=user)
    plain_git("fetch", "--quiet", tmp_path / "bundle", "refs/heads/ironworks-in:refs/heads/new", cwd=user)
    assert plain_git("rev-parse", "new", cwd=user) == commit
    depot.bundle(commit, tmp_path / "whole")
    plain_git("init", "--quiet", tmp_path / "empty", cwd=user)
    plain_git("fetch", "--quiet", tmp_path / "whole", "ironworks-in", cwd=tmp_path / "empty")


def test_a_repository_with_sha256_ids_works_throughout(tmp_path: Path, git: GitCall) -> None:
    user = tmp_path / "user"
    user.mkdir()
    git("init", "--quiet", "--initial-branch=main", "--object-format=sha256", cwd=user)
    git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=user)
    depot = Depot(tmp_path / "depot.git", user)
    base = depot.sync("main")
    commit = depot.commit(depot.write_tree(base, {"a": Blob(b"1"), "b": None}), [base], "m")
    assert len(commit) == 64
    depot.bundle(commit, tmp_path / "bundle", exclude=[base])
    other = Depot(tmp_path / "other.git", user)
    other.sync("main")
    assert other.admit(tmp_path / "bundle", base=base, ref="refs/attempts/1") == commit
    assert depot.push("refs/heads/ironworks/1", commit, expected=None)
    depot.base_repository(commit, tmp_path / "base.git")
    assert depot.read(commit, "a") == b"1"


def test_what_a_crash_left_is_swept_once_it_is_old(user: Path, tmp_path: Path) -> None:
    path = tmp_path / "depot.git"
    scratch = path / "scratch"
    Depot(path, user)
    for name, age_s in (("old", 2 * 24 * 3600), ("young", 60)):
        (scratch / name).mkdir()
        (scratch / name / "file").write_text("x")
        then = (scratch / name).stat().st_mtime - age_s
        os.utime(scratch / name, (then, then))
    Depot(path, user)
    assert [entry.name for entry in scratch.iterdir()] == ["young"]
