import json
import subprocess
from pathlib import Path

import pytest
from tests.app.ground import commit, git, repository

from ironworks.app.progress import IssueProgress, RunProgress
from ironworks.app.pulls import overlay, pull_states
from ironworks.core.states import State
from ironworks.git.command import Git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "r")


def record(root: Path, id: str, text: str | None = None, **fields: object) -> None:
    """Write a pull request's record the way the local forge does: a commit whose tree has pull.json."""
    content = text if text is not None else json.dumps({"id": id, "base": "main", "kind": "issue", **fields})
    (root / ".git" / "pull.json").write_text(content)
    blob = git(root, "hash-object", "-w", ".git/pull.json")
    (root / ".git" / "listing").write_text(f"100644 blob {blob}\tpull.json\n")
    with (root / ".git" / "listing").open() as listing:
        made_tree = subprocess.run(
            ["git", "mktree"], cwd=root, stdin=listing, capture_output=True, timeout=30
        )
    made = git(root, "commit-tree", "-m", "record", made_tree.stdout.decode().strip())
    git(root, "update-ref", f"refs/ironworks/pulls/{id}", made)


def states(root: Path) -> dict[str, str]:
    return pull_states(Git(root / ".git"))


def test_without_records_nothing_is_known(root: Path) -> None:
    assert states(root) == {}


@pytest.mark.spec("CLI-4")
def test_a_branch_that_base_contains_is_merged_whoever_merged_it(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "ironworks/one")
    head = commit(root, {"x": "1"})
    record(root, "one", state="landed", head=head)
    assert states(root) == {"one": "landed"}
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "ironworks/one")
    assert states(root) == {"one": "merged"}


@pytest.mark.spec("CLI-4")
def test_the_integrations_merge_is_the_merge_of_all_it_closes(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "ironworks/integration")
    head = commit(root, {"x": "1"})
    for issue in ("one", "two"):
        record(root, issue, state="landed", head="a" * 40)
    record(root, "integration", kind="integration", closes=["one", "two"], state="open", head=head)
    assert states(root) == {"one": "landed", "two": "landed", "integration": "open"}
    git(root, "branch", "-f", "main", head)
    assert states(root) == dict.fromkeys(("one", "two", "integration"), "merged")


@pytest.mark.parametrize(
    "garbage", ["{", "[]", '"x"', "", "\udcff", '{"id": 3, "base": ["\\ud800"]}', "[" * 100_000]
)
def test_a_record_of_garbage_hurts_no_other(root: Path, garbage: str) -> None:
    record(root, "aaa", garbage.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    record(root, "one", state="open", head="a" * 40)
    git(root, "update-ref", "refs/ironworks/pulls/bbb", git(root, "rev-parse", "main"))
    assert states(root)["one"] == "open"


def test_more_records_than_one_reading_takes(root: Path) -> None:
    record(root, "one", state="open", head="a" * 40)
    made = git(root, "rev-parse", "refs/ironworks/pulls/one")
    for number in range(150):
        git(root, "update-ref", f"refs/ironworks/pulls/a{number}", made)
    record(root, "zzz", state="closed", head="a" * 40)
    assert states(root) == {"one": "open", "zzz": "closed"}


@pytest.mark.parametrize(
    ("folded", "known", "shown"),
    [
        ("landed", "merged", "merged"),
        ("parked", "merged", "merged"),
        ("skipped", "landed", "landed"),
        ("skipped", "open", "proposed"),
        ("working", "open", "working"),
        ("landed", "open", "landed"),
    ],
)
def test_a_record_overrides_only_what_it_knows_better(
    root: Path, folded: State, known: str, shown: str
) -> None:
    head = git(root, "rev-parse", "main") if known == "merged" else "a" * 40
    record(root, "one", state=known, head=head)
    run = RunProgress(issues={"one": IssueProgress("one", state=folded, reason="r")})
    overlay(run, Git(root / ".git"))
    assert run.issues["one"].state == shown
