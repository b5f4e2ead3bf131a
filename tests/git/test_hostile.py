"""Hostile repositories: each trap is first shown to go off under plain git, then not to under ours."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.git.conftest import plain_git

from ironworks.core.errors import GitError
from ironworks.git.depot import Depot
from ironworks.git.tree import Blob

HOOKS = (
    "pre-receive",
    "update",
    "post-receive",
    "post-update",
    "proc-receive",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "pre-push",
    "post-checkout",
    "post-merge",
    "pre-commit",
    "commit-msg",
)


class Trap(NamedTuple):
    """`set_up(repository, canary)` arms it; `trigger(repository)` is what sets it off under plain git."""

    set_up: Callable[[Path, Path], None]
    trigger: Callable[[Path], object]


def program(canary: Path) -> Path:
    """A program that leaves its mark and says nothing."""
    path = canary.parent / "trap"
    path.write_text(f'#!/bin/sh\necho ran >> "{canary}"\n')
    path.chmod(0o755)
    return path


def config(repository: Path, name: str, value: str | Path) -> None:
    plain_git("config", "--add", name, str(value), cwd=repository)


def try_(*args: str | Path, cwd: Path) -> None:
    """Whatever comes of it: all that counts is whether the trap went off."""
    try:
        plain_git(*args, cwd=cwd)
    except RuntimeError:
        return


def push_to(repository: Path) -> None:
    elsewhere = repository.parent / "elsewhere"
    if not elsewhere.exists():
        elsewhere.mkdir()
        plain_git("init", "--quiet", cwd=elsewhere)
        plain_git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=elsewhere)
    try_("push", "--quiet", repository, "HEAD:refs/ironworks/x", cwd=elsewhere)


def hooks_in(folder: Path, canary: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in HOOKS:
        (folder / name).symlink_to(program(canary))


def set_hooks(repository: Path, canary: Path) -> None:
    hooks_in(repository / ".git" / "hooks", canary)


def set_proc_receive(repository: Path, canary: Path) -> None:
    set_hooks(repository, canary)
    config(repository, "receive.procReceiveRefs", "refs")


def set_hooks_path(repository: Path, canary: Path) -> None:
    hooks_in(canary.parent / "hooks", canary)
    config(repository, "core.hooksPath", canary.parent / "hooks")


def set_config(name: str) -> Callable[[Path, Path], None]:
    return lambda repository, canary: config(repository, name, program(canary))


def set_fsmonitor_by_include(repository: Path, canary: Path) -> None:
    included = canary.parent / "included"
    config(repository, "include.path", included)
    included.write_text(f"[core]\n\tfsmonitor = {program(canary)}\n\thooksPath = {canary.parent}/hooks\n")
    hooks_in(canary.parent / "hooks", canary)


def set_alternates(repository: Path, canary: Path) -> None:
    other = repository.parent / "other"
    plain_git("clone", "--quiet", "--bare", repository, other, cwd=repository)
    (repository / ".git" / "objects" / "info" / "alternates").write_text(f"{other / 'objects'}\n")
    config(repository, "core.alternateRefsCommand", program(canary))


def set_promisor(repository: Path, canary: Path) -> None:
    """An object is missing, and the repository says whom to ask for it, and how."""
    plain_git("clone", "--quiet", "--bare", repository, repository.parent / "promise.git", cwd=repository)
    config(repository, "core.repositoryFormatVersion", "1")
    config(repository, "extensions.partialClone", "origin")
    config(repository, "remote.origin.promisor", "true")
    config(repository, "remote.origin.url", repository.parent / "promise.git")
    config(repository, "remote.origin.uploadpack", program(canary))
    blob = plain_git("rev-parse", "HEAD:a", cwd=repository)
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def set_filter(repository: Path, canary: Path) -> None:
    """A push to the branch checked out would update the work tree, and so run the filter."""
    (repository / ".gitattributes").write_text("* filter=evil\n")
    plain_git("add", "-A", cwd=repository)
    plain_git("commit", "--quiet", "-m", "attributes", cwd=repository)
    for name in ("clean", "smudge", "process"):
        config(repository, f"filter.evil.{name}", program(canary))
    config(repository, "filter.evil.required", "true")


def set_drivers(repository: Path, canary: Path) -> None:
    (repository / ".gitattributes").write_text("* diff=evil merge=evil\n")
    plain_git("add", "-A", cwd=repository)
    plain_git("commit", "--quiet", "-m", "attributes", cwd=repository)
    for name in ("diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "diff.external"):
        config(repository, name, program(canary))


TRAPS = {
    "hooks": Trap(set_hooks, push_to),
    "proc-receive": Trap(set_proc_receive, push_to),
    "hooksPath": Trap(set_hooks_path, push_to),
    "fsmonitor": Trap(set_config("core.fsmonitor"), lambda repo: try_("status", cwd=repo)),
    "include": Trap(set_fsmonitor_by_include, lambda repo: try_("status", cwd=repo)),
    "sshCommand": Trap(
        set_config("core.sshCommand"), lambda repo: try_("ls-remote", "ssh://localhost/x", cwd=repo)
    ),
    "gitProxy": Trap(
        set_config("core.gitProxy"), lambda repo: try_("ls-remote", "git://localhost/x", cwd=repo)
    ),
    "alternates": Trap(set_alternates, push_to),
    "promisor": Trap(set_promisor, lambda repo: try_("cat-file", "-e", "HEAD:a", cwd=repo)),
    "filter": Trap(set_filter, lambda repo: try_("checkout", "--force", "HEAD", "--", ".", cwd=repo)),
    "drivers": Trap(set_drivers, lambda repo: try_("diff", "HEAD~1", "HEAD", cwd=repo)),
    "editor": Trap(set_config("core.editor"), lambda repo: try_("commit", "--allow-empty", cwd=repo)),
    "gpg": Trap(
        set_config("gpg.program"), lambda repo: try_("commit", "-S", "--allow-empty", "-m", "x", cwd=repo)
    ),
}


UNUSABLE = {"promisor", "proc-receive"}
"""An object is missing, or pushes are for a hook to handle: failing is right, running something is not."""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    folder = tmp_path / "traps"
    folder.mkdir()
    return folder / "canary"


def work_with(depot: Depot, folder: Path) -> None:
    assert depot.current_branch() == "main"
    base = depot.sync("main")
    one = depot.commit(depot.write_tree(base, {"a": Blob(b"one\n2\nthree\n")}), [base], "one")
    two = depot.commit(depot.write_tree(base, {"a": Blob(b"1\ntwo\nthree\n")}), [base], "two")
    assert not depot.merge(one, two).clean
    assert "-two" in depot.diff(base, one)
    assert depot.push("refs/heads/ironworks/1", one, expected=None)
    assert depot.push("refs/heads/ironworks/1", two, expected=one)
    assert depot.push("refs/ironworks/x", one, expected=None)
    assert depot.sync("main") == base
    assert depot.remote_refs("refs/ironworks/") == {"refs/ironworks/x": one}
    depot.base_repository(base, folder / "base.git")
    depot.bundle(one, folder / "bundle", exclude=[base])
    depot.admit(folder / "bundle", base=base, ref="refs/attempts/1")
    assert depot.push("refs/ironworks/x", None, expected=one)


@pytest.mark.spec("GIT-1")
@pytest.mark.parametrize("name", TRAPS)
def test_nothing_that_a_repository_configures_is_run(
    user: Path, tmp_path: Path, canary: Path, name: str
) -> None:
    TRAPS[name].set_up(user, canary)
    canary.unlink(missing_ok=True)
    with suppress(GitError) if name in UNUSABLE else nullcontext():
        work_with(Depot(tmp_path / "depot.git", user), tmp_path)
    assert not canary.exists()
    TRAPS[name].trigger(user)
    assert canary.exists(), "the trap does not work, so that it proves nothing"


@pytest.mark.spec("GIT-1")
def test_a_pack_objects_hook_of_the_users_own_is_not_run_either(
    user: Path, tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = program(canary)
    hook.write_text(f'#!/bin/sh\necho ran >> "{canary}"\nexec "$@"\n')
    settings = tmp_path / ".gitconfig"
    settings.write_text(f"[uploadpack]\n\tpackObjectsHook = {hook}\n")
    config(user, "uploadpack.packObjectsHook", hook)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    work_with(Depot(tmp_path / "depot.git", user), tmp_path)
    assert not canary.exists()
    (tmp_path / "fetcher").mkdir()
    plain_git("init", "--quiet", cwd=tmp_path / "fetcher")
    plain_git("fetch", "--quiet", user, "main", cwd=tmp_path / "fetcher")
    assert canary.exists()


@pytest.mark.spec("GIT-1")
def test_a_push_never_touches_a_work_tree(user: Path, depot: Depot) -> None:
    config(user, "receive.denyCurrentBranch", "updateInstead")
    base = depot.sync("main")
    commit = depot.commit(depot.write_tree(base, {"a": Blob(b"changed\n")}), [base], "m")
    with pytest.raises(GitError, match="main"):
        depot.push("refs/heads/main", commit, expected=base)
    assert (user / "a").read_text() == "one\ntwo\nthree\n"
    depot.git.run("update-ref", "refs/heads/control", commit)
    plain_git("push", "--quiet", user, "refs/heads/control:refs/heads/main", cwd=depot.path)
    assert (user / "a").read_text() == "changed\n"


@pytest.mark.spec("GIT-1")
def test_a_work_tree_elsewhere_is_not_written(user: Path, tmp_path: Path, depot: Depot) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    config(user, "core.worktree", outside)
    work_with(depot, tmp_path)
    assert list(outside.iterdir()) == []
    plain_git("checkout", "--force", "HEAD", "--", ".", cwd=user)
    assert list(outside.iterdir()) != []


@pytest.mark.spec("GIT-1")
def test_hidden_or_forbidden_refs_of_a_repository_do_not_stop_the_factory(user: Path, depot: Depot) -> None:
    for name in ("transfer.hideRefs", "receive.hideRefs", "uploadpack.hideRefs"):
        config(user, name, "refs/ironworks")
    config(user, "receive.denyDeletes", "true")
    config(user, "receive.denyNonFastForwards", "true")
    base = depot.sync("main")
    one, two = (depot.commit(depot.tree_of(base), [], "m", unique=True) for _ in range(2))
    assert depot.push("refs/ironworks/x", one, expected=None)
    assert depot.push("refs/ironworks/x", two, expected=one)
    depot.sync("main")
    assert depot.resolve("refs/ironworks/x") == two
    assert depot.push("refs/ironworks/x", None, expected=two)


@pytest.mark.spec("GIT-1")
def test_submodules_are_neither_fetched_nor_followed(
    user: Path, tmp_path: Path, canary: Path, depot: Depot
) -> None:
    (user / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = x\n\turl = ext::{program(canary)}\n')
    head = plain_git("rev-parse", "HEAD", cwd=user)
    plain_git("update-index", "--add", "--cacheinfo", f"160000,{head},x", cwd=user)
    plain_git("add", ".gitmodules", cwd=user)
    plain_git("commit", "--quiet", "-m", "submodule", cwd=user)
    config(user, "fetch.recurseSubmodules", "true")
    config(user, "protocol.ext.allow", "always")
    work_with(depot, tmp_path)
    assert not canary.exists()
    config(user, "submodule.x.url", f"ext::{program(canary)}")
    try_("-c", "protocol.ext.allow=always", "submodule", "update", "--init", cwd=user)
    assert canary.exists()


@pytest.mark.spec("GIT-9")
@pytest.mark.parametrize("attributes", ["* merge=union\n", "* merge=ours\n", "* -merge\n", "* binary\n"])
def test_no_attribute_has_a_say_in_a_merge(user: Path, depot: Depot, attributes: str) -> None:
    (user / ".gitattributes").write_text(attributes)
    plain_git("add", "-A", cwd=user)
    plain_git("commit", "--quiet", "-m", "attributes", cwd=user)
    base = depot.sync("main")
    one = depot.commit(depot.write_tree(base, {"a": Blob(b"one\n2\nthree\n")}), [base], "one")
    two = depot.commit(depot.write_tree(base, {"a": Blob(b"one\nzwei\nthree\n")}), [base], "two")
    merge = depot.merge(one, two)
    assert [(conflict.path, conflict.kind) for conflict in merge.conflicts] == [("a", "content")]
    assert "-two\n+2\n" in depot.diff(base, one)
