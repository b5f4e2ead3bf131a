"""The local forge: what is closed, and records that others wrote, well or not."""

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.forge.conftest import Git, HandClock

from ironworks.core import crash
from ironworks.core.errors import ConfigError, RefusedError
from ironworks.core.models import PullRequest
from ironworks.core.ports import Forge
from ironworks.forge.local.forge import LocalForge
from ironworks.git.depot import Depot

BACKLOG = "# Backlog\n\n- [ ] One\n- [x] Two\n- [ ] Three\n"


@pytest.fixture
def backlog(user: Path) -> Path:
    path = user / "docs" / "backlog.md"
    path.parent.mkdir()
    path.write_text(BACKLOG)
    return path


@pytest.fixture
def forge(depot: Depot, backlog: Path, clock: HandClock) -> Forge:
    return LocalForge(depot, backlog, clock)


@pytest.fixture
def other(new_depot: Callable[[str], Depot], backlog: Path, clock: HandClock) -> Forge:
    """Another factory on the same repository."""
    return LocalForge(new_depot("other"), backlog, clock)


@pytest.fixture
def head(git: Git) -> str:
    """A commit that is not on `main`."""
    return git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "work")


def request(id: str, head: str, **fields: object) -> PullRequest:
    values = {"title": "T", "body": "B", "branch": f"ironworks/{id}", "base": "main", **fields}
    return PullRequest.model_validate({"id": id, "head": head, **values})


def closed(forge: Forge) -> dict[str, bool]:
    return {issue.title: issue.closed for issue in forge.issues()}


def id_of(forge: Forge, title: str) -> str:
    return next(issue.id for issue in forge.issues() if issue.title == title)


@pytest.mark.spec("FG-8")
def test_issues_come_from_the_backlog_as_it_is_now(forge: Forge, other: Forge, backlog: Path) -> None:
    assert closed(forge) == {"One": False, "Two": True, "Three": False}
    assert forge.issues()[0].source == "docs/backlog.md:3"
    assert forge.issues() == other.issues()
    backlog.write_text("- [ ] New\n" + BACKLOG)
    assert list(closed(forge)) == ["New", "One", "Two", "Three"]


@pytest.mark.spec("FG-8")
def test_the_same_backlog_gives_the_same_ids_in_another_clone(
    forge: Forge, tmp_path: Path, git: Git, clock: HandClock
) -> None:
    git("add", "docs")
    git("commit", "--quiet", "-m", "backlog")
    git("clone", "--quiet", ".", str(tmp_path / "clone"))
    clone = LocalForge(
        Depot(tmp_path / "s2" / "d", tmp_path / "clone"), tmp_path / "clone/docs/backlog.md", clock
    )
    assert [issue.id for issue in clone.issues()] == [issue.id for issue in forge.issues()]


@pytest.mark.spec("FG-8")
def test_without_a_backlog_there_are_no_issues(depot: Depot, clock: HandClock) -> None:
    assert LocalForge(depot, None, clock).issues() == []


@pytest.mark.spec("FG-8")
@pytest.mark.parametrize("name", ["missing.md", "docs"])
def test_a_backlog_that_is_no_file_is_a_clear_error(
    depot: Depot, backlog: Path, clock: HandClock, name: str
) -> None:
    with pytest.raises(ConfigError, match="no backlog") as raised:
        LocalForge(depot, backlog.parents[1] / name, clock).issues()
    assert raised.value.hint


@pytest.mark.spec("FG-9")
def test_a_merged_pull_request_closes_its_issue(forge: Forge, head: str) -> None:
    pull = request(id_of(forge, "One"), head)
    assert forge.put_pull(pull, expected=None)
    assert not closed(forge)["One"]
    assert forge.put_pull(pull.model_copy(update={"state": "merged"}), expected=pull)
    assert closed(forge)["One"]
    assert not closed(forge)["Three"]


@pytest.mark.spec("FG-9")
def test_an_integration_that_was_merged_closes_all_its_issues(forge: Forge, head: str) -> None:
    ids = (id_of(forge, "One"), id_of(forge, "Three"))
    pull = request("integration", head, kind="integration", closes=ids)
    forge.put_pull(pull, expected=None)
    assert closed(forge) == {"One": False, "Two": True, "Three": False}
    forge.put_pull(pull.model_copy(update={"state": "merged"}), expected=pull)
    assert all(closed(forge).values())


@pytest.mark.spec("FG-9")
def test_work_that_a_person_merged_with_git_is_closed_too(forge: Forge, head: str, git: Git) -> None:
    forge.put_pull(
        request("integration", head, kind="integration", closes=[id_of(forge, "One")]), expected=None
    )
    git("merge", "--quiet", "--ff-only", head)
    assert closed(forge) == {"One": True, "Two": True, "Three": False}


@pytest.mark.spec("FG-9")
@pytest.mark.parametrize("state", ["closed", "evicted"])
def test_a_pull_request_that_was_given_up_closes_nothing(forge: Forge, git: Git, state: str) -> None:
    forge.put_pull(request(id_of(forge, "One"), git("rev-parse", "HEAD"), state=state), expected=None)
    assert not closed(forge)["One"]


@pytest.mark.spec("FG-10")
def test_pull_requests_are_shared_and_change_by_compare_and_set(
    forge: Forge, other: Forge, head: str
) -> None:
    pull = request(
        "one", head, title="-é\n\t🧨\udcff " + "long " * 100, body="\x00\x1b\r\n" * 10, closes=["one", "two"]
    )
    assert (forge.pull("one"), forge.pulls()) == (None, [])
    assert forge.put_pull(pull, expected=None)
    assert forge.put_pull(pull, expected=None), "repeating it after a crash is no failure"
    assert other.pull("one") == pull
    landed = pull.model_copy(update={"state": "landed"})
    assert other.put_pull(landed, expected=pull)
    assert not forge.put_pull(pull.model_copy(update={"state": "evicted"}), expected=pull)
    assert not forge.put_pull(pull, expected=None)
    assert forge.put_pull(pull, expected=landed)
    assert other.pulls() == [pull]


@pytest.mark.spec("FG-10")
def test_the_history_of_a_pull_request_is_kept(forge: Forge, other: Forge, head: str, git: Git) -> None:
    pull = request("one", head)
    landed = pull.model_copy(update={"state": "landed"})
    forge.put_pull(pull, expected=None)
    other.put_pull(landed, expected=pull)
    forge.put_pull(landed.model_copy(update={"state": "merged"}), expected=landed)
    assert git("log", "--format=%s", "refs/ironworks/pulls/one").splitlines() == [
        "merged: T",
        "landed: T",
        "open: T",
    ]


@pytest.mark.spec("FG-10")
def test_of_many_changes_at_once_exactly_one_is_made(forge: Forge, other: Forge, head: str) -> None:
    pull = request("one", head)
    forge.put_pull(pull, expected=None)
    changes = [pull.model_copy(update={"reason": str(number)}) for number in range(8)]

    def change(number: int) -> bool:
        return (forge, other)[number % 2].put_pull(changes[number], expected=pull)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(change, range(8)))
    assert made.count(True) == 1
    assert forge.pull("one") == changes[made.index(True)]


def record(git: Git, content: bytes, name: str = "pull.json", mode: str = "100644") -> str:
    blob = git("hash-object", "-w", "--stdin", stdin=content)
    tree = git("mktree", "-z", stdin=f"{mode} blob {blob}\t{name}\0".encode())
    return git("commit-tree", tree, "-m", "pushed by somebody")


def altered(git: Git, head: str, old: str, new: str) -> str:
    return record(git, request("bad", head).to_json().replace(old, new).encode())


RUBBISH: dict[str, Callable[[Git, str], str]] = {
    "a blob": lambda git, head: git("hash-object", "-w", "--stdin", stdin=b"x"),
    "a tree": lambda git, head: git("rev-parse", "HEAD^{tree}"),
    "a commit of something else": lambda git, head: git("rev-parse", "HEAD"),
    "no JSON": lambda git, head: record(git, b"\xff\x00{"),
    "an empty file": lambda git, head: record(git, b""),
    "JSON of something else": lambda git, head: record(git, b"[1]"),
    "deep JSON": lambda git, head: record(git, b"[" * 1_000_000),
    "a huge file": lambda git, head: record(git, b" " * 5_000_000),
    "a symbolic link": lambda git, head: record(git, b"/etc/passwd", mode="120000"),
    "another file": lambda git, head: record(git, b"{}", name="pulls.json"),
    "another pull request's": lambda git, head: record(git, request("two", head).to_json().encode()),
    "an unknown field": lambda git, head: altered(git, head, "{", '{"x":1,'),
    "a hostile head": lambda git, head: altered(git, head, head, "--all"),
}  # fmt: skip


@pytest.mark.spec("FG-11")
@pytest.mark.parametrize("kind", RUBBISH)
def test_a_record_that_is_not_ours_is_ignored_with_a_warning_and_can_be_replaced(
    forge: Forge, head: str, git: Git, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = request("good", head)
    forge.put_pull(good, expected=None)
    git("update-ref", "refs/ironworks/pulls/bad", RUBBISH[kind](git, head))
    with caplog.at_level(logging.WARNING):
        assert forge.pulls() == [good]
        assert forge.pull("bad") is None
        assert len(forge.issues()) == 3
    if kind != "another pull request's":
        assert "not a record of ours" in caplog.text
    mended = request("bad", head)
    assert forge.put_pull(mended, expected=None)
    assert forge.pulls() == [mended, good]


@pytest.mark.spec("FG-11")
@pytest.mark.parametrize("name", ["a/b", "UPPER", "a.b", "é", "a--"])
def test_refs_with_strange_names_are_ignored(forge: Forge, head: str, git: Git, name: str) -> None:
    git("update-ref", f"refs/ironworks/pulls/{name}", record(git, request("one", head).to_json().encode()))
    assert forge.pulls() == []


@pytest.mark.spec("FG-11")
def test_a_head_or_base_that_does_not_exist_closes_nothing(forge: Forge) -> None:
    pull = request(id_of(forge, "One"), "0" * 39 + "1")
    forge.put_pull(pull, expected=None)
    assert not closed(forge)["One"]
    assert forge.put_pull(pull.model_copy(update={"base": "gone"}), expected=pull)
    assert not closed(forge)["One"]


@pytest.mark.spec("FG-11")
@pytest.mark.parametrize("base", ["..", "-x", "a\nb", "*", "", "x" * 300])
def test_a_base_that_is_no_branch_name_closes_nothing(forge: Forge, head: str, git: Git, base: str) -> None:
    id = id_of(forge, "One")
    text = request(id, head, base=base).to_json().encode()
    git("update-ref", f"refs/ironworks/pulls/{id}", record(git, text))
    assert not closed(forge)["One"]


@pytest.mark.spec("FG-11")
@pytest.mark.parametrize("id", ["../../heads/main", "", "a b", "-x", "a\n"])
def test_an_id_that_could_lead_elsewhere_is_refused(forge: Forge, head: str, id: str) -> None:
    with pytest.raises(RefusedError):
        forge.put_pull(request(id, head), expected=None)


@pytest.mark.spec("FG-11")
def test_a_pull_request_too_large_to_be_read_again_is_refused(forge: Forge, head: str) -> None:
    with pytest.raises(RefusedError, match="larger than"):
        forge.put_pull(request("one", head, body="x" * 5_000_000), expected=None)
    assert forge.pulls() == []


@pytest.mark.spec("FG-12")
def test_questions_are_left_in_the_repository_once(
    forge: Forge, other: Forge, git: Git, clock: HandClock
) -> None:
    forge.ask("one", ["Which colour?", "When\n?"])
    before = git("rev-parse", "refs/ironworks/questions/one")
    clock.pass_s(60)
    other.ask("one", ["Which colour?", "When\n?"])
    assert git("rev-parse", "refs/ironworks/questions/one") == before
    saved = json.loads(git("cat-file", "blob", "refs/ironworks/questions/one:questions.json"))
    assert saved["questions"] == ["Which colour?", "When\n?"]
    other.ask("one", ["Really?"])
    assert "Really?" in git("cat-file", "blob", "refs/ironworks/questions/one:questions.json")


@pytest.mark.spec("FG-10")
def test_crash_points_stand_around_the_write(forge: Forge, head: str) -> None:
    seen: list[tuple[str, bool]] = []
    crash.arm(lambda name: seen.append((name, forge.pull("one") is not None)) if "pull" in name else None)
    try:
        forge.put_pull(request("one", head), expected=None)
    finally:
        crash.arm(None)
    assert seen == [("pull.before_write", False), ("pull.after_write", True)]


@pytest.mark.spec("FG-8")
def test_the_users_files_and_branches_stay_as_they_are(
    forge: Forge, head: str, git: Git, backlog: Path
) -> None:
    before = (git("for-each-ref", "refs/heads"), git("status", "--porcelain"))
    forge.issues()
    forge.put_pull(request("one", head), expected=None)
    forge.ask("one", ["?"])
    assert (git("for-each-ref", "refs/heads"), git("status", "--porcelain")) == before
    assert backlog.read_text() == BACKLOG
