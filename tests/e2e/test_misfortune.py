"""What operators, other factories and other people do to a run at the wrong moment."""

import concurrent.futures
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.census import disks
from tests.e2e.test_control import finished, until
from tests.e2e.workshop import Workshop, add, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WHO = ("-c", "user.name=Someone", "-c", "user.email=someone@localhost")
INTEGRATION = "ironworks/integration"


def commit(shop: Workshop, path: str, text: str) -> None:
    (shop.repository / path).write_text(text, "utf-8")
    shop.git("add", "-A")
    shop.git(*WHO, "commit", "-qm", f"Change {path}")


def pull(report: dict[str, Any], id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(pull for pull in report["pull_requests"] if pull["id"] == id)
    return found


@pytest.mark.spec("EN-8")
def test_what_one_factory_has_landed_another_that_waited_does_not_work_on_again(tmp_path: Path) -> None:
    plan = {"slow": {"work": [["sleep 6", *add("slow")]]}, "fast": {"work": [add("fast")]}}
    shop = Workshop(tmp_path, plan, more="[limits]\nparallel = 1\n")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(shop.run, state="state-a")
        until(lambda: "IssueClaimed" in shop.call(events_of(shop, "state-a"))[1], "the slow one is claimed")
        second = pool.submit(shop.run, state="state-b")

    assert first.result()[0] == second.result()[0] == 0
    assert states(first.result()[1]) == {"slow": "landed", "fast": "lost_claim"}
    assert states(second.result()[1]) == {"slow": "lost_claim", "fast": "landed"}


def events_of(shop: Workshop, state: str) -> list[str]:
    return shop.arguments("events", "--json", state=state)


@pytest.mark.spec("EN-27")
def test_an_integration_branch_that_somebody_deleted_closes_only_what_the_new_one_holds(
    tmp_path: Path,
) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    assert states(shop.run()[1]) == {"One": "landed"}
    shop.git("update-ref", "-d", f"refs/heads/{INTEGRATION}")
    shop.backlog.write_text("## One\n\nPlease.\n\n## Two\n\nPlease.\n", "utf-8")
    shop.plan({"One": {"work": [add("one")]}, "Two": {"work": [add("two")]}})

    _, report = shop.run()

    ids = {issue["title"]: issue["id"] for issue in report["issues"]}
    assert pull(report, "integration")["closes"] == [ids["Two"]]
    assert shop.ironworks("retry", ids["One"])[0] == 0
    _, report = shop.run()
    assert states(report)["One"] == "landed"
    assert sorted(pull(report, "integration")["closes"]) == sorted(ids.values())


@pytest.mark.spec("EN-28")
def test_an_integration_branch_that_base_has_overtaken_is_proved_anew_and_can_be_merged(
    tmp_path: Path,
) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    assert states(shop.run()[1]) == {"One": "landed"}
    commit(shop, "README.md", "Somebody else was here.\n")
    assert shop.ironworks("pr", "merge", "integration")[0] == 1

    assert shop.run()[0] == 0

    code, _, err = shop.ironworks("pr", "merge", "integration")
    assert code == 0, err
    assert "Somebody" in shop.git("show", "main:README.md") and shop.git("show", "main:till/one.py")


@pytest.mark.spec("EN-28")
def test_why_an_integration_branch_could_not_be_proved_anew_is_said_until_it_can(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    assert states(shop.run()[1]) == {"One": "landed"}
    commit(shop, "till/one.py", "def one():\n    return 'somebody else was here'\n")

    code, out, err = shop.call([word for word in shop.run_words() if word != "--json"])

    assert code == 0, err
    assert "cannot be merged" in out and "till/one.py" in out
    assert (
        "reason: not proved anew: it does not fit main: till/one.py"
        in shop.ironworks("pr", "show", "integration")[1]
    )
    code, _, err = shop.ironworks("pr", "merge", "integration")
    assert code == 1 and "till/one.py" in err
    shop.git(*WHO, "revert", "--no-edit", "HEAD")
    assert pull(shop.run()[1], "integration")["reason"] == ""
    assert shop.ironworks("pr", "merge", "integration")[0] == 0


@pytest.mark.spec("EN-32")
def test_a_branch_that_is_checked_out_is_not_proved_anew_and_the_run_ends_well(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    assert states(shop.run()[1]) == {"One": "landed"}
    commit(shop, "README.md", "Somebody else was here.\n")
    shop.git("worktree", "add", "-q", str(tmp_path / "tree"), INTEGRATION)

    code, report = shop.run()

    assert code == 0
    assert "checked out in" in pull(report, "integration")["reason"]
    shop.git("worktree", "remove", str(tmp_path / "tree"))
    assert pull(shop.run()[1], "integration")["reason"] == ""


def clash(name: str) -> list[str]:
    """A worker that changes the line that every other one changes too."""
    return [f"sed -i 's/rounded down/rounded {name}/' till/prices.py", *add(name)]


@pytest.mark.spec("MG-4", "EN-35")
def test_an_eviction_says_why_the_resolver_had_no_answer(tmp_path: Path) -> None:
    last = "these are my last words"
    plan = {name: {"work": [clash(name.lower())], "resolve": last} for name in ("Ape", "Bee")}
    shop = Workshop(tmp_path, plan, more="[limits]\nattempts = 1\n")

    code, report = shop.run()

    [gone] = [issue for issue in report["issues"] if issue["state"] == "evicted"]
    assert code == 1 and gone["reason"] == "conflict"
    assert gone["detail"].startswith("till/prices.py: ")
    assert "; the resolver gave no answer: attempts: no valid handoff (failed): " in gone["detail"]
    assert gone["detail"].endswith(last) and len(gone["detail"]) < 3000
    assert pull(report, gone["id"])["reason"].endswith(last)
    sittings = [stage["attempt"] for stage in gone["stages"] if stage["stage"] == "integrate"]
    assert sittings == [1, 2]
    shown = json.loads(shop.ironworks("show", gone["id"], "--json")[1])
    assert [stage["attempt"] for stage in shown["stages"] if stage["stage"] == "integrate"] == sittings


@pytest.mark.spec("EN-4")
def test_a_limit_of_open_pull_requests_does_not_strand_those_of_a_run_that_was_killed(tmp_path: Path) -> None:
    plan = {"One": {"work": [add("one")]}, "Two": {"work": [add("two")]}}
    shop = Workshop(tmp_path, plan, more="[limits]\nmax_open_pull_requests = 2\n")
    assert shop.run(crash_at="integrate.before_ref")[0] < 0

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed", "Two": "landed"})


@pytest.mark.spec("EN-13")
def test_a_proposal_that_could_not_be_integrated_lands_when_it_is_retried(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    shop.git("checkout", "-q", "-b", INTEGRATION)
    commit(shop, "README.md", "Mine.\n")
    shop.git("checkout", "-q", "main")
    commit(shop, "README.md", "Theirs.\n")
    code, report = shop.run()
    assert (code, states(report)) == (1, {"One": "parked"})

    shop.git("branch", "-q", "-D", INTEGRATION)
    assert shop.ironworks("retry", report["issues"][0]["id"])[0] == 0
    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})


@pytest.mark.spec("EN-29")
def test_a_base_that_cannot_be_tested_is_mended_by_a_commit_and_the_run_goes_on(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    sound = (shop.repository / "check.py").read_text("utf-8")
    commit(shop, "check.py", "import nothing\n" + sound)
    code, out, _ = shop.call(shop.run_words())
    assert code == 2 and "does not work on the base commit" in out

    commit(shop, "check.py", sound)
    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})


@pytest.mark.spec("EN-10")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_is_stopped_while_it_prepares_its_base(number: int, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    settings = (shop.repository / "ironworks.toml").read_text("utf-8")
    slow = settings.replace("[project]", '[project]\nprepare = ["sleep 200"]', 1)
    commit(shop, "ironworks.toml", slow)
    process = shop.start(shop.run_words())
    until(lambda: disks(tmp_path / "state"), "it prepares")
    time.sleep(0.5)

    process.send_signal(number)
    report = finished(process)

    assert report["stopped"] is True and process.returncode == 1


@pytest.mark.spec("GIT-25")
def test_what_prepare_leaves_behind_lands_nowhere_and_is_no_catch(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    prepare = (
        "mkdir -p till.egg-info && echo 1 > till.egg-info/PKG-INFO && echo 1 > built && echo >> README.md"
    )
    settings = (shop.repository / "ironworks.toml").read_text("utf-8")
    commit(shop, "ironworks.toml", settings.replace("[project]", f'[project]\nprepare = ["{prepare}"]', 1))

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})
    assert [catch["code"] for catch in report["caught"]] == ["known-failing"]
    changed = shop.git("diff", "--name-only", "main", INTEGRATION).split()
    assert changed == ["tests/test_one.py", "till/one.py"]


@pytest.mark.spec("EN-30")
def test_a_run_that_was_stopped_finishes_all_it_had_begun_whatever_is_named_next(tmp_path: Path) -> None:
    plan = {"One": {"work": [["sleep 30"]]}, "Two": {"work": [["sleep 30"]]}}
    shop = Workshop(tmp_path, plan)
    process = shop.start(shop.run_words())
    until(lambda: len(list(tmp_path.glob("state/logs/*/*/work-*"))) == 2, "both are worked on")
    assert shop.ironworks("stop", "--now")[0] == 0
    ids = {issue["title"]: issue["id"] for issue in finished(process)["issues"]}
    shop.plan({"One": {"work": [add("one")]}, "Two": {"work": [add("two")]}})

    code, out, err = shop.call([*shop.run_words(), "--issue", ids["One"]])

    assert code == 0, err
    assert '"lost_claim"' not in out
    assert all(shop.git("show", f"{INTEGRATION}:till/{name}.py") for name in ("one", "two"))
