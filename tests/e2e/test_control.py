"""People's commands to a factory, while it runs and while it does not: stop, pause, answer, retry, detach."""

import json
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.census import gone, processes
from tests.e2e.workshop import Workshop, add, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 90.0


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := true():
            return value
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}")


def finished(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.strip(), err.decode()[-3000:]
    report: dict[str, Any] = json.loads(out)
    return report


def the(report: dict[str, Any]) -> dict[str, Any]:
    [only] = report["issues"]
    issue: dict[str, Any] = only
    return issue


@pytest.mark.spec("EN-10")
@pytest.mark.parametrize("how", ["stop", "stop --now", "SIGINT"])
def test_a_stopped_run_captures_the_work_ends_everything_and_goes_on_later(how: str, tmp_path: Path) -> None:
    mark = f"sleep 7{secrets.randbelow(10**8):08}"
    shop = Workshop(tmp_path, {"One": {"work": [[add("one")[0], mark]]}})
    process = shop.start(shop.run_words())
    until(lambda: processes(mark), "the agent works")

    if how == "SIGINT":
        process.send_signal(signal.SIGINT)
    else:
        assert shop.ironworks(*how.split())[0] == 0
    report = finished(process)

    assert report["stopped"] is True and report["exit_code"] == 1
    assert gone(mark) == []
    if how != "stop --now":
        depot = tmp_path / "state" / "depot.git"
        refs = subprocess.run(
            ["git", "--git-dir", str(depot), "for-each-ref", "--format=%(refname)", "refs/attempts"],
            capture_output=True, check=True, timeout=30,
        ).stdout.split()  # fmt: skip
        assert len(refs) == 1

    shop.plan({"One": {"work": [[add("one")[0], *add("one")[1:]]]}})
    code, report = shop.run()
    assert (code, states(report)) == (0, {"One": "landed"})


@pytest.mark.spec("EN-11")
def test_a_paused_issue_stands_still_until_it_is_resumed(tmp_path: Path) -> None:
    ticks = tmp_path / "agent"
    loop = "for i in $(seq 1 30); do echo tick $i; sleep 0.1; done"
    shop = Workshop(tmp_path, {"One": {"work": [[loop, *add("one")]]}})
    process = shop.start(shop.run_words())
    log = until(lambda: list(tmp_path.glob("state/logs/*/*/work-*/stdout.log")), "the agent prints")[0]
    until(lambda: "tick" in log.read_text(), "the agent ticks")

    assert shop.ironworks("pause")[0] == 0
    until(lambda: "IssuePaused" in shop.ironworks("events", "--json")[1], "the pause is recorded")
    before = log.read_text()
    time.sleep(1.0)
    assert log.read_text() == before and process.poll() is None
    assert shop.ironworks("resume")[0] == 0

    assert states(finished(process)) == {"One": "landed"}
    assert ticks.is_dir()


@pytest.mark.spec("EN-12")
def test_a_vague_issue_is_asked_about_and_built_once_somebody_answers(tmp_path: Path) -> None:
    question = {"decision": "ask", "questions": ["Which colour?"]}
    told = "python3 -c \"import json, os; print(json.load(open(os.environ['IRONWORKS_INPUT']))['answers'])\""
    work = [[f"{told} > told.txt", *add("one")]]
    shop = Workshop(tmp_path, {"One": {"triage": question, "work": work}})

    code, report = shop.run()
    assert (code, states(report)) == (0, {"One": "asked"})
    assert "Which colour?" in shop.ironworks("show", the(report)["id"])[1]
    again = the(shop.run()[1])
    assert (again["state"], again["detail"]) == ("asked", "Which colour?"), "a second run forgot it"

    assert shop.ironworks("answer", the(report)["id"], "Deep green")[0] == 0
    shop.plan({"One": {"work": work}})
    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})
    assert "Deep green" in shop.git("show", "ironworks/integration:told.txt")


@pytest.mark.spec("EN-12")
def test_a_worker_that_asks_is_parked_and_goes_on_where_it_was_after_the_answer(
    tmp_path: Path,
) -> None:
    asking = [add("one")[0], 'iw ask "How many?"; sleep 60']
    shop = Workshop(tmp_path, {"One": {"work": [asking]}})

    code, report = shop.run()
    assert (code, the(report)["state"], the(report)["reason"]) == (1, "parked", "needs_input")
    assert "How many?" in the(report)["detail"]

    assert shop.ironworks("answer", the(report)["id"], "Seven")[0] == 0
    shop.plan({"One": {"work": [[add("one")[0], "test -e till/one.py", *add("one")[1:]]]}})
    code, report = shop.run()
    assert (code, states(report)) == (0, {"One": "landed"})


@pytest.mark.spec("EN-13")
def test_retry_gives_a_parked_issue_another_life_and_a_landed_one_none(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [["exit 3"]]}}, more="[limits]\nattempts = 1\n")
    code, report = shop.run()
    assert (code, the(report)["state"], the(report)["reason"]) == (1, "parked", "attempts")

    assert shop.ironworks("retry", the(report)["id"])[0] == 0
    shop.plan({"One": {"work": [add("one")]}})
    code, report = shop.run()
    assert (code, states(report)) == (0, {"One": "landed"})

    assert shop.ironworks("retry", the(report)["id"])[0] == 0
    code, report = shop.run()
    assert code == 0 and len([pull for pull in report["pull_requests"] if pull["kind"] == "issue"]) == 1


@pytest.mark.spec("EN-14")
def test_one_state_directory_has_one_factory(tmp_path: Path) -> None:
    mark = f"sleep 6{secrets.randbelow(10**8):08}"
    shop = Workshop(tmp_path, {"One": {"work": [[mark]]}})
    process = shop.start(shop.run_words())
    until(lambda: processes(mark), "the agent works")

    code, out, err = shop.call(shop.run_words())

    assert code == 2 and "error[busy]" in err and str(process.pid) in err + out
    shop.ironworks("stop")
    assert finished(process)["stopped"] is True


@pytest.mark.spec("EN-15")
def test_a_detached_run_goes_on_without_its_terminal_and_attach_tells_how_it_ended(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [["sleep 1", *add("one")]]}})

    code, out, err = shop.call([*shop.run_words(), "--detach"])
    assert code == 0, err
    assert json.loads(out)["run"].startswith("run-")

    code, out, err = shop.ironworks("attach", "--json")
    assert code == 0, err
    assert gone(str(tmp_path)) == []
    code, out, _ = shop.ironworks("status", "--json")
    assert "landed" in out


@pytest.mark.spec("EN-16")
def test_the_human_merges_and_the_next_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    code, report = shop.run()
    assert code == 0

    words = report["next"].split()
    assert words[:3] == ["ironworks", "pr", "merge"]
    code, _, err = shop.ironworks("pr", "merge", "integration")
    assert code == 0, err
    assert shop.git("rev-parse", "main") == shop.git("rev-parse", "ironworks/integration")
    assert (shop.repository / "till" / "one.py").is_file() and shop.suite_passes("main")

    code, report = shop.run()
    assert code == 0 and states(report) in ({}, {"One": "merged"}, {"One": "skipped"})


@pytest.mark.spec("EN-31")
def test_commits_of_a_person_on_an_issues_branch_are_kept_when_it_is_proposed_anew(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [["exit 3"]]}}, more="[limits]\nattempts = 1\n")
    one = the(shop.run()[1])["id"]
    shop.git("branch", f"ironworks/{one}", "main")
    shop.git("worktree", "add", "-q", str(tmp_path / "tree"), f"ironworks/{one}")
    (tmp_path / "tree" / "mine.txt").write_text("mine", "utf-8")
    there = ("-C", str(tmp_path / "tree"), "-c", "user.name=me", "-c", "user.email=me@localhost")
    shop.git(*there, "add", "-A")
    shop.git(*there, "commit", "-qm", "Mine")
    mine = shop.git("rev-parse", f"ironworks/{one}").strip()
    shop.git("worktree", "remove", str(tmp_path / "tree"))

    assert shop.ironworks("retry", one)[0] == 0
    shop.plan({"One": {"work": [add("one")]}})
    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})
    assert shop.git("rev-parse", f"refs/ironworks/kept/{one}/{mine}").strip() == mine


@pytest.mark.spec("EN-32")
def test_nobody_moves_the_integration_branch_while_it_is_checked_out(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    shop.git("checkout", "-q", "-b", "ironworks/integration")

    code, report = shop.run()
    assert (code, the(report)["state"]) == (1, "parked") and "checked out" in the(report)["detail"]

    shop.git("checkout", "-q", "main")
    assert shop.ironworks("retry", the(report)["id"])[0] == 0
    assert states(shop.run()[1]) == {"One": "landed"}


@pytest.mark.spec("EN-32")
@pytest.mark.parametrize("there", [True, False])
def test_nobody_moves_it_under_a_linked_work_tree_either(there: bool, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    tree = tmp_path / "a linked tree"
    shop.git("worktree", "add", "-q", "-b", "ironworks/integration", str(tree))
    was = shop.git("rev-parse", "ironworks/integration")
    if not there:
        shutil.rmtree(tree)

    code, report = shop.run()

    assert (code, the(report)["state"]) == (1, "parked"), the(report)
    assert str(tree) in the(report)["detail"]
    assert ("git worktree prune" in the(report)["detail"]) is not there
    assert shop.git("rev-parse", "ironworks/integration") == was
    assert shop.ironworks("integrate", "main", "--config", str(shop.config))[0] != 0
    shop.git(*(["-C", str(tree), "checkout", "-q", "--detach"] if there else ["worktree", "prune"]))
    assert shop.ironworks("retry", the(report)["id"])[0] == 0
    assert states(shop.run()[1]) == {"One": "landed"}


@pytest.mark.spec("EN-33")
def test_a_run_with_nothing_to_do_prepares_and_proves_nothing(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"triage": {"decision": "ask", "questions": ["Which?"]}}})
    assert states(shop.run()[1]) == {"One": "asked"}
    shop.run()
    lines = shop.ironworks("events", "--json")[1].splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (kinds.count("RunStarted"), kinds.count("RunFinished"), kinds.count("BaselineTaken")) == (2, 2, 1)
    assert not list((tmp_path / "state").glob("sandboxes/disks/*"))


def test_an_order_that_cannot_be_carried_out_starts_no_run(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    code, _, err = shop.call([*shop.run_words(), "--issue", "nope"])
    assert code == 2 and "nope" in err
    assert "RunStarted" not in shop.ironworks("events", "--json")[1]
    assert states(shop.run()[1]) == {"One": "landed"}
