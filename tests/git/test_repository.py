import os
from pathlib import Path

import pytest
from tests.git.conftest import GitCall, plain_git

from ironworks.core.errors import ConfigError, RefusedError
from ironworks.git.depot import Depot
from ironworks.git.repository import Repository


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Another repository of the user's, which no stranger's repository may have us write to."""
    folder = tmp_path / "secret"
    folder.mkdir()
    plain_git("init", "--quiet", "--initial-branch=main", cwd=folder)
    plain_git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=folder)
    return folder


def test_the_branch_checked_out_is_found_from_every_way_to_name_the_repository(
    user: Path, git: GitCall
) -> None:
    git("checkout", "--quiet", "-b", "feature/é", cwd=user)
    bare = user.parent / "bare.git"
    git("clone", "--quiet", "--bare", user, bare, cwd=user)
    for path in (user, user / ".git", bare):
        assert Repository(path).current_branch() == "feature/é"


def test_a_detached_head_or_a_branch_without_commits_is_said(user: Path, git: GitCall) -> None:
    git("checkout", "--quiet", "--detach", cwd=user)
    with pytest.raises(ConfigError, match="no branch checked out"):
        Repository(user).current_branch()
    git("checkout", "--quiet", "--orphan", "new", cwd=user)
    with pytest.raises(ConfigError, match="no commit yet"):
        Repository(user).current_branch()


@pytest.mark.parametrize("name", ["empty", "-x", "new\nline", "nfd-e\u0301", "🔨"])
def test_a_folder_without_a_repository_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match="not a git repository"):
        Repository(tmp_path / name)
    with pytest.raises(ConfigError, match="not a git repository"):
        Repository(tmp_path / name / "absent")


@pytest.mark.spec("GIT-7")
@pytest.mark.parametrize(
    "name",
    [b"-x", b"new\nline", b"a b'\"$(touch x)", b"colon:semi;", b"\xff\xfe", "e\u0301🔨".encode(), b"x" * 255],
)
def test_a_repository_and_a_depot_may_be_called_anything(
    tmp_path: Path, user: Path, name: bytes, git: GitCall
) -> None:
    place = tmp_path / os.fsdecode(name)
    user.rename(place)
    depot = Depot(tmp_path / "state" / os.fsdecode(name), place)
    base = depot.sync("main")
    commit = depot.commit(depot.write_tree(base, {}), [base], "m")
    assert depot.push("refs/heads/ironworks/1", commit, expected=None)
    depot.base_repository(base, tmp_path / "base" / os.fsdecode(name))
    depot.bundle(commit, tmp_path / "bundle", exclude=[base])
    assert depot.admit(tmp_path / "bundle", base=base, ref="refs/attempts/1") == commit
    assert git("rev-parse", "ironworks/1", cwd=place) == commit


def test_a_linked_work_tree_is_a_repository(user: Path, git: GitCall) -> None:
    linked = user.parent / "linked"
    git("worktree", "add", "--quiet", "-b", "side", linked, cwd=user)
    repository = Repository(linked)
    assert repository.current_branch() == "side"
    assert set(repository.refs("refs/heads/")) == {"refs/heads/main", "refs/heads/side"}


@pytest.mark.spec("GIT-3")
@pytest.mark.parametrize("kind", ["file", "link", "named-link", "named-file"])
def test_a_dot_git_that_stands_for_another_repository_is_refused(
    tmp_path: Path, secret: Path, kind: str
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    if kind.endswith("file"):
        (trap / ".git").write_text(f"gitdir: {secret / '.git'}\n")
    else:
        (trap / ".git").symlink_to(secret / ".git")
    with pytest.raises(RefusedError):
        Repository(trap / ".git" if kind.startswith("named") else trap)


@pytest.mark.spec("GIT-3")
def test_a_commondir_that_leads_elsewhere_is_refused(user: Path, secret: Path) -> None:
    (user / ".git" / "commondir").write_text(f"{secret / '.git'}\n")
    with pytest.raises(RefusedError, match="its objects are in"):
        Repository(user)


@pytest.mark.spec("GIT-3")
@pytest.mark.parametrize(
    "name", ["refs", "refs/heads", "refs/ironworks", "refs/heads/ironworks", "objects/aa", "logs"]
)
def test_a_symbolic_link_on_the_way_of_a_push_is_refused(
    user: Path, tmp_path: Path, name: str, git: GitCall
) -> None:
    outside = tmp_path / "outside"
    link = user / ".git" / name
    if link.exists():
        link.rename(outside)
    else:
        outside.mkdir()
    link.symlink_to(outside)
    before = everything(outside)
    with pytest.raises(RefusedError, match="symbolic link"):
        Depot(tmp_path / "depot.git", user)
    assert everything(outside) == before


def test_a_push_through_such_a_link_would_indeed_write_outside(
    user: Path, tmp_path: Path, git: GitCall
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (user / ".git" / "refs" / "ironworks").symlink_to(outside)
    git("push", "--quiet", user, "HEAD:refs/ironworks/claims", cwd=user)
    assert everything(outside) == {"claims"}


def test_refs_are_found_by_prefix_and_only_by_prefix(user: Path, git: GitCall) -> None:
    for ref in (
        "refs/ironworks/a/1",
        "refs/ironworks/a/12",
        "refs/ironworks/b/1",
        "refs/heads/refs/ironworks/a/1",
    ):
        git("update-ref", ref, "HEAD", cwd=user)
    repository = Repository(user)
    assert set(repository.refs("refs/ironworks/a/1")) == {"refs/ironworks/a/1", "refs/ironworks/a/12"}
    assert set(repository.refs("refs/ironworks/a/")) == {"refs/ironworks/a/1", "refs/ironworks/a/12"}
    assert len(repository.refs("")) == 5
