import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.app.ground import repository
from tests.cli.conftest import Cli, ended, parked, queued, started, working

from ironworks.app.place import Place, find_place, hold_lock
from ironworks.core import events as ev
from ironworks.store.store import Store

History = Callable[..., None]


def test_before_the_first_run_status_says_so(cli: Cli, place: Place) -> None:
    said = cli("status")
    assert said.code == 0
    assert "No run has been started" in said.out
    found = json.loads(cli("status", "--json").out)
    assert (found["run"], found["issues"], found["running"]) == ("", [], False)
    assert not place.state.exists()


@pytest.mark.spec("CLI-4")
def test_status_folds_the_events_of_the_newest_run(cli: Cli, place: Place, history: History) -> None:
    history(started(run="run-0"), *parked("old", run="run-0"))
    history(started(backlog="/b.md"), *working("one"), *parked("two"), ended())
    found = json.loads(cli("status", "--json").out)
    assert [(issue["id"], issue["state"], issue["reason"]) for issue in found["issues"]] == [
        ("one", "working", ""),
        ("two", "parked", "looping"),
    ]
    assert found["cost_usd"] == 2.5
    assert [issue["id"] for issue in json.loads(cli("status", "--run", "run-0", "--json").out)["issues"]] == [
        "old"
    ]
    text = cli("status").out
    assert "two: the worker went in circles. round it goes" in text
    assert "    ironworks retry two\n" in text


@pytest.mark.spec("CLI-8")
def test_the_last_command_that_status_suggests_succeeds_when_typed(
    cli: Cli, place: Place, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(started(), *parked("two"), ended())
    monkeypatch.chdir(tmp_path)
    text = cli("status", "--repository", str(place.root)).out
    command = text.splitlines()[-1].removeprefix("next: ")
    assert command == f"ironworks retry two --repository {place.root}"
    assert cli(*command.split()[1:]).code == 0
    text = cli("status", "--repository", str(place.root)).out
    assert "waiting for a factory: retry two" in text
    assert text.splitlines()[-1] == f"next: ironworks run --repository {place.root}"


def test_a_run_that_does_not_exist_is_named_with_the_newest(cli: Cli, history: History) -> None:
    history(started(), *working("one"))
    said = cli("status", "--run", "nope")
    assert said.code == 2
    assert "nope" in said.err
    assert "run-1" in said.err


def test_a_run_whose_process_died_is_called_interrupted(cli: Cli, history: History) -> None:
    history(started(), *working("one"))
    said = cli("status").out
    assert "interrupted" in said
    assert said.splitlines()[-1] == "next: ironworks run"


def test_status_says_that_a_factory_runs(cli: Cli, place: Place, history: History) -> None:
    history(started(), *working("one"))
    with hold_lock(place.state):
        assert f"running (process {os.getpid()})" in cli("status").out
        assert json.loads(cli("status", "--json").out)["pid"] == os.getpid()


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize("verb", [["status"], ["show", "one"], ["events"], ["logs", "one"]])
def test_nothing_hidden_in_titles_bodies_or_logs_reaches_the_terminal(
    cli: Cli, place: Place, history: History, verb: list[str]
) -> None:
    history(started(), queued("one", title="evil\x1b[2J\x07title\u202e"))
    folder = place.logs / "run-1" / "one" / "work-1"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_bytes(b"log\x1b]0;x\x07 \xff\x9b31m\r\n")
    said = cli(*verb)
    assert said.code == 0
    assert not [character for character in said.out if ord(character) < 32 and character not in "\n\t"]
    assert "\\x1b" in said.out


def test_show_tells_all_about_an_issue(cli: Cli, place: Place, history: History) -> None:
    verification = {
        "verdict": "failed",
        "tests": {"t::a": "passed", "t::b": "failed"},
        "regressions": ["t::b"],
        "findings": [{"code": "weakened", "message": "a test is gone", "fatal": True, "path": "t.py"}],
        "fail_to_pass": {"proven": ["t::a"], "waived": ""},
    }
    review = {"verdict": "request_changes", "findings": [{"severity": "major", "claim": "off by one"}]}
    stage = {"run": "run-1", "issue": "one", "attempt": 1, "duration_s": 61.0}
    history(
        started(),
        *working("one"),
        ev.StageFinished(stage="verify", outcome="failed", handoff=verification, **stage),  # type: ignore[arg-type]
        ev.StageFinished(stage="review", outcome="request_changes", handoff=review, **stage),  # type: ignore[arg-type]
        ev.IssueParked(run="run-1", issue="one", reason="attempts", detail="three rounds"),
    )
    text = cli("show", "one").out
    for words in (
        "one: A title", "parked (attempts)", "The body.", "b.md:1", "1m01s", "1 failed, 1 passed",
        "regression: t::b", "! weakened: a test is gone (t.py)", "major: off by one",
        "next: ironworks retry one",
    ):  # fmt: skip
        assert words in text
    found = json.loads(cli("show", "one", "--json").out)
    assert found["evidence"] == {"verification": verification, "review": review}
    assert found["issue"]["body"] == "The body."


@pytest.mark.parametrize("verb", ["show", "logs", "retry", "answer"])
def test_an_issue_that_does_not_exist_is_named_with_the_closest(
    cli: Cli, history: History, verb: str
) -> None:
    history(started(), *working("fix-login-1a2b"))
    said = cli(verb, "fix-logn-1a2b", *(["text"] if verb == "answer" else []))
    assert said.code == 2
    assert "did you mean fix-login-1a2b?" in said.err


@pytest.mark.parametrize("issue", ["", "..", "../..", "*", "/etc", "a\nb", "-x"])
def test_an_issue_name_cannot_reach_other_folders(
    cli: Cli, place: Place, history: History, issue: str
) -> None:
    history(started(), *working("one"))
    (place.state / "lock-like" / "work-1").mkdir(parents=True)
    assert cli("logs", "--", issue).code == 2


def test_logs_shows_the_end_of_the_newest_attempt_and_lists_all_as_json(
    cli: Cli, place: Place, history: History
) -> None:
    history(started(), *working("one"))
    assert cli("logs", "one").code == 2
    for number, name in enumerate(("triage-1", "work-1", "work-2")):
        folder = place.logs / "run-1" / "one" / name
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("".join(f"{name} line {line}\n" for line in range(300)))
        os.utime(folder, (number + 1, number + 1))
    text = cli("logs", "one", "--tail", "2").out
    assert text.splitlines()[1:] == ["work-2 line 298", "work-2 line 299"]
    assert "triage-1 line 0\n" in cli("logs", "one", "--stage", "triage", "--tail", "0").out
    listed = json.loads(cli("logs", "one", "--json").out)
    assert [(each["stage"], each["attempt"]) for each in listed] == [
        ("triage", "1"),
        ("work", "1"),
        ("work", "2"),
    ]
    assert listed[0]["files"]["stdout.log"] > 0


def test_events_are_printed_one_a_line_and_can_be_narrowed(cli: Cli, history: History) -> None:
    history(started(), *working("one"), *working("two"))
    lines = cli("events", "--json").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 10))
    assert len(cli("events", "--issue", "one").out.splitlines()) == 4
    assert len(cli("events", "--after", "7").out.splitlines()) == 2


@pytest.mark.spec("CLI-12")
def test_events_can_be_followed_until_the_factory_ends(place: Place, history: History) -> None:
    history(started(), *working("one"))
    with contextlib.ExitStack() as lock:
        lock.enter_context(hold_lock(place.state))
        with subprocess.Popen(
            [sys.executable, "-m", "ironworks", "events", "--follow"],
            cwd=place.root,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdout=subprocess.PIPE,
            text=True,
        ) as follower:
            assert follower.stdout is not None
            first = [follower.stdout.readline() for _ in range(5)]
            history(ev.IssueParked(run="run-1", issue="one", reason="looping"))
            assert "IssueParked" in follower.stdout.readline()
            lock.close()
            rest, _ = follower.communicate(timeout=30)
    assert (len(first), rest, follower.returncode) == (5, "", 0)


def test_a_broken_database_is_a_clear_error(cli: Cli, place: Place) -> None:
    place.state.mkdir(parents=True)
    place.database.write_bytes(b"not a database, not at all" * 100)
    said = cli("status")
    assert said.code == 3
    assert "error[store]" in said.err


def test_reading_works_while_somebody_writes(cli: Cli, place: Place, history: History) -> None:
    history(started(), *working("one"))
    store = Store(place.database)
    with store.database.write():
        began = time.monotonic()
        assert cli("status").code == 0
    store.close()
    assert time.monotonic() - began < 30


def test_the_state_can_be_named(cli: Cli, place: Place, tmp_path: Path) -> None:
    other = repository(tmp_path / "other")
    found = json.loads(
        cli("status", "--json", "--repository", str(other), "--state", str(tmp_path / "st")).out
    )
    assert (found["repository"], found["state_dir"]) == (str(other), str(tmp_path / "st"))
    assert find_place(other).state != tmp_path / "st"
