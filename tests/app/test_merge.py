import ast
from pathlib import Path

import pytest
from tests.app.ground import commit, git, repository, write

import ironworks
from ironworks.app.merge import close_pull, merge_pull
from ironworks.core.clock import SystemClock
from ironworks.core.errors import ConflictError, MissingError, RefusedError
from ironworks.core.models import PullRequest
from ironworks.forge.local.forge import LocalForge
from ironworks.git.depot import Depot

BRANCH = "ironworks/integration"


class Works:
    """A repository in which a factory has landed issue `one` and issue `two` on the integration branch."""

    def __init__(self, folder: Path, *, bare: bool = False, files: dict[str, str] | None = None) -> None:
        self.root = repository(folder / "r", {"a.txt": "old\n", "b.txt": "old\n"} | (files or {}))
        self.before = git(self.root, "rev-parse", "main")
        git(self.root, "checkout", "-q", "-b", BRANCH)
        self.head = commit(self.root, {"a.txt": "new\n", "deep/er.txt": "new\n"})
        git(self.root, "checkout", "-q", "main")
        self.remote = self.root
        if bare:
            self.remote = folder / "bare.git"
            git(folder, "clone", "-q", "--bare", str(self.root), str(self.remote))
        self.depot = Depot(folder / "depot.git", self.remote)
        self.depot.sync("main")
        self.forge = LocalForge(self.depot, None, SystemClock())
        for id in ("one", "two"):
            self.put(self.pull(id, branch=f"ironworks/{id}", state="landed"))
        self.put(self.pull("integration", kind="integration", branch=BRANCH, closes=("one", "two")))

    def pull(self, id: str, **fields: object) -> PullRequest:
        return PullRequest.model_validate(
            {"id": id, "title": id, "body": "", "base": "main", "head": self.head, **fields}
        )

    def put(self, pull: PullRequest) -> None:
        assert self.forge.put_pull(pull, expected=self.forge.pull(pull.id))

    def states(self) -> dict[str, str]:
        return {pull.id: pull.state for pull in self.forge.pulls()}

    def tip(self, folder: Path | None = None) -> str:
        return git(folder or self.remote, "rev-parse", "refs/heads/main")


@pytest.fixture
def works(tmp_path: Path) -> Works:
    return Works(tmp_path)


@pytest.mark.spec("CLI-13")
def test_a_clean_checkout_is_fast_forwarded_and_all_records_say_merged(works: Works) -> None:
    merged = merge_pull(works.forge, works.depot, "integration")
    assert (merged.before, merged.commit, merged.issues) == (works.before, works.head, ("one", "two"))
    assert merged.checkout == works.root
    assert works.tip() == works.head
    assert (works.root / "a.txt").read_text() == "new\n"
    assert git(works.root, "status", "--porcelain") == ""
    assert works.states() == dict.fromkeys(("one", "two", "integration"), "merged")


@pytest.mark.spec("CLI-13")
def test_a_bare_repository_is_moved_by_compare_and_set(tmp_path: Path) -> None:
    works = Works(tmp_path, bare=True)
    assert merge_pull(works.forge, works.depot, "integration").checkout is None
    assert works.tip() == works.head
    assert works.tip(works.root) == works.before


@pytest.mark.spec("CLI-13")
def test_a_base_that_is_not_checked_out_moves_without_touching_the_checkout(works: Works) -> None:
    git(works.root, "checkout", "-q", "-b", "mine")
    write(works.root, {"a.txt": "being edited\n"})
    assert merge_pull(works.forge, works.depot, "integration").checkout is None
    assert works.tip() == works.head
    assert (works.root / "a.txt").read_text() == "being edited\n"


@pytest.mark.spec("CLI-13")
def test_a_base_checked_out_in_a_linked_work_tree_is_updated_there(works: Works, tmp_path: Path) -> None:
    git(works.root, "checkout", "-q", "-b", "mine")
    git(works.root, "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    assert merge_pull(works.forge, works.depot, "integration").checkout == tmp_path / "linked"
    assert (tmp_path / "linked" / "a.txt").read_text() == "new\n"
    assert git(tmp_path / "linked", "status", "--porcelain") == ""


@pytest.mark.spec("CLI-13")
def test_changes_elsewhere_in_the_checkout_are_kept(works: Works) -> None:
    write(works.root, {"b.txt": "mine\n", "untracked": "mine\n"})
    merge_pull(works.forge, works.depot, "integration")
    assert (works.root / "b.txt").read_text() == "mine\n"
    assert (works.root / "untracked").read_text() == "mine\n"
    assert (works.root / "a.txt").read_text() == "new\n"


def untouched(works: Works, files: dict[str, str]) -> None:
    assert works.tip() == works.before
    assert {name: (works.root / name).read_text() for name in files} == files
    assert works.states()["integration"] == "open"


@pytest.mark.spec("CLI-14")
@pytest.mark.parametrize("files", [{"a.txt": "mine\n"}, {"deep/er.txt": "mine\n"}])
def test_a_change_in_the_way_is_named_and_nothing_is_touched(works: Works, files: dict[str, str]) -> None:
    write(works.root, files)
    with pytest.raises(ConflictError, match=next(iter(files))) as caught:
        merge_pull(works.forge, works.depot, "integration")
    assert "ironworks pr merge integration" in caught.value.hint
    untouched(works, files)


@pytest.mark.spec("CLI-14")
def test_a_staged_change_in_the_way_is_refused(works: Works) -> None:
    write(works.root, {"a.txt": "mine\n"})
    git(works.root, "add", "a.txt")
    with pytest.raises(ConflictError):
        merge_pull(works.forge, works.depot, "integration")
    untouched(works, {"a.txt": "mine\n"})


@pytest.mark.spec("CLI-14")
def test_a_base_that_moved_on_must_be_rebuilt_on(works: Works) -> None:
    works.before = commit(works.root, {"c.txt": "x"})
    with pytest.raises(ConflictError, match="must be rebuilt") as caught:
        merge_pull(works.forge, works.depot, "integration")
    assert caught.value.hint == "ironworks run"
    untouched(works, {"a.txt": "old\n"})


@pytest.mark.spec("CLI-14")
def test_a_branch_that_is_not_what_was_proved_is_refused(works: Works) -> None:
    other = git(works.root, "commit-tree", "-p", works.head, "-m", "sneaked in", f"{works.head}^{{tree}}")
    git(works.root, "update-ref", f"refs/heads/{BRANCH}", other)
    with pytest.raises(RefusedError, match="not what was proved"):
        merge_pull(works.forge, works.depot, "integration")
    git(works.root, "update-ref", "-d", f"refs/heads/{BRANCH}")
    with pytest.raises(RefusedError, match="gone"):
        merge_pull(works.forge, works.depot, "integration")
    untouched(works, {"a.txt": "old\n"})


@pytest.mark.spec("CLI-14")
@pytest.mark.parametrize("state", ["merged", "closed", "evicted"])
def test_a_pull_request_that_is_not_open_is_refused(works: Works, state: str) -> None:
    works.put(works.pull("one", branch=BRANCH, state=state, reason="because"))
    with pytest.raises(RefusedError, match=state):
        merge_pull(works.forge, works.depot, "one")
    assert works.tip() == works.before


@pytest.mark.spec("CLI-14")
def test_nothing_landed_is_said(works: Works) -> None:
    works.put(works.pull("integration", kind="integration", branch=BRANCH, closes=()))
    with pytest.raises(RefusedError, match="nothing has landed"):
        merge_pull(works.forge, works.depot, "integration")


def test_an_unknown_pull_request_is_missing(works: Works) -> None:
    with pytest.raises(MissingError, match="nope"):
        merge_pull(works.forge, works.depot, "nope")


def test_one_issue_can_be_merged_alone_and_the_others_are_left(works: Works) -> None:
    git(works.root, "branch", "ironworks/one", works.head)
    assert merge_pull(works.forge, works.depot, "one").issues == ("one",)
    assert works.tip() == works.head
    assert works.states() == {"one": "merged", "two": "landed", "integration": "open"}


def test_what_a_crash_cut_short_is_finished_by_repeating(works: Works) -> None:
    git(works.root, "merge", "-q", "--ff-only", works.head)
    assert merge_pull(works.forge, works.depot, "integration").checkout is None
    assert works.states()["two"] == "merged"


def test_a_branch_moved_between_look_and_merge_is_not_lost(works: Works) -> None:
    git(works.root, "checkout", "-q", "-b", "mine")
    other = git(works.root, "commit-tree", "-p", works.before, "-m", "x", f"{works.before}^{{tree}}")
    git(works.root, "update-ref", "refs/heads/main", other)
    assert not works.depot.push("refs/heads/main", works.head, expected=works.before)
    with pytest.raises(ConflictError):
        merge_pull(works.forge, works.depot, "integration")
    assert works.tip() == other


@pytest.mark.spec("CLI-15")
def test_merging_runs_no_hook_filter_or_monitor_of_the_repository(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    works = Works(tmp_path, files={".gitattributes": "* filter=trap\n"})
    program = f"touch {trap}"
    for name in ("post-merge", "post-checkout", "reference-transaction", "pre-merge-commit"):
        hook = works.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{program}\n")
        hook.chmod(0o755)
    for key, value in (
        ("core.fsmonitor", program),
        ("filter.trap.smudge", f"{program}; cat"),
        ("filter.trap.clean", f"{program}; cat"),
        ("filter.trap.process", program),
        ("filter.trap.required", "true"),
        ("gpg.program", program),
        ("merge.verifySignatures", "false"),
    ):
        git(works.root, "config", key, value)
    trap.unlink(missing_ok=True)
    merge_pull(works.forge, works.depot, "integration")
    assert not trap.exists()
    assert (works.root / "a.txt").read_text() == "new\n"
    assert works.tip() == works.head


@pytest.mark.spec("CLI-15")
def test_a_work_tree_registered_by_a_stranger_is_not_written_to(works: Works, tmp_path: Path) -> None:
    git(works.root, "checkout", "-q", "-b", "mine")
    git(works.root, "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    (tmp_path / "victim").mkdir()
    (works.root / ".git" / "worktrees" / "linked" / "gitdir").write_text(f"{tmp_path / 'victim' / '.git'}\n")
    with pytest.raises(RefusedError):
        merge_pull(works.forge, works.depot, "integration")
    assert list((tmp_path / "victim").iterdir()) == []


def test_closing_keeps_the_branch_and_says_why(works: Works) -> None:
    works.put(works.pull("three", branch="ironworks/three"))
    assert close_pull(works.forge, "three", "not wanted").state == "closed"
    found = works.forge.pull("three")
    assert found is not None
    assert (found.state, found.reason) == ("closed", "not wanted")
    merge_pull(works.forge, works.depot, "integration")
    assert works.states() == {"one": "merged", "two": "merged", "three": "closed", "integration": "merged"}
    with pytest.raises(RefusedError, match="merged"):
        close_pull(works.forge, "two", "")
    with pytest.raises(MissingError):
        close_pull(works.forge, "nope", "")


@pytest.mark.spec("CLI-16")
def test_nothing_of_the_factory_can_merge() -> None:
    source = Path(ironworks.__file__).parent
    found = []
    for package in (
        "engine",
        "forge",
        "merge",
        "agents",
        "verify",
        "sandbox",
        "egress",
        "git",
        "store",
        "core",
    ):
        for path in (source / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                found += [
                    f"{path}: {name}" for name in names if name.startswith(("ironworks.app", "ironworks.cli"))
                ]
    assert found == []
    factory = (source / "app" / "factory.py").read_text("utf-8")
    assert "merge_pull" not in factory
    assert "app.merge" not in factory


@pytest.mark.spec("CLI-22")
def test_what_has_landed_cannot_be_closed_and_what_is_closed_is_not_merged(works: Works) -> None:
    with pytest.raises(RefusedError, match="has landed") as refused:
        close_pull(works.forge, "two", "not now")
    assert "git revert" in refused.value.hint
    works.put(works.pull("two", branch="ironworks/two", state="closed"))
    with pytest.raises(RefusedError, match="two is closed"):
        merge_pull(works.forge, works.depot, "integration")
    assert works.tip() == works.before
