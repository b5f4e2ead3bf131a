"""Eight failures on which other factories were seen to break: handled, and the report tells the truth."""

import concurrent.futures
import secrets
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.census import disks, gone, mounts, processes
from tests.e2e.workshop import Workshop, add, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def issue(report: dict[str, Any], title: str) -> dict[str, Any]:
    return next(entry for entry in report["issues"] if entry["title"] == title)


@pytest.mark.spec("EN-1")
def test_a_lie_about_passing_tests_is_parked_and_the_honest_issue_lands(tmp_path: Path) -> None:
    lie = [*add("lie")[:2], "sed -i 's/amount [*] percent/amount + percent/' till/rates.py", *add("lie")[2:]]
    shop = Workshop(tmp_path, {"Lie": {"work": [lie]}, "Honest": {"work": [add("honest")]}})

    code, report = shop.run()

    assert code == 1
    assert states(report) == {"Lie": "parked", "Honest": "landed"}
    liar = issue(report, "Lie")
    assert liar["reason"] == "attempts"
    assert any("test_share" in name for name in liar["evidence"]["verification"]["regressions"])
    assert any(f["code"] == "claim-contradicted" for f in liar["evidence"]["verification"]["findings"])
    assert [pull["id"] for pull in report["pull_requests"] if pull["kind"] == "issue"] == [
        issue(report, "Honest")["id"]
    ]
    assert shop.suite_passes("ironworks/integration")


@pytest.mark.spec("EN-2")
def test_uncommitted_work_is_captured_and_lands(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"Ghost": {"work": [add("ghost")[:2]]}})

    code, report = shop.run()

    assert (code, states(report)) == (0, {"Ghost": "landed"})
    assert issue(report, "Ghost")["evidence"]["work"]["ghost"] is True
    assert "def ghost" in shop.git("show", "ironworks/integration:till/ghost.py")


@pytest.mark.spec("EN-3")
def test_two_issues_that_add_to_the_same_test_file_both_land_with_both_tests(tmp_path: Path) -> None:
    def append(name: str) -> list[str]:
        case = (
            f"\\n    def test_{name}(self):\\n        from till.{name} import {name}\\n"
            f"\\n        self.assertEqual({name}(), 1)\\n"
        )
        return [
            f"printf 'def {name}():\\n    return 1\\n' > till/{name}.py",
            f"printf '{case}' >> tests/test_prices.py",
            f"git add -A && git commit -qm 'Add {name}'",
        ]

    shop = Workshop(tmp_path, {"One": {"work": [append("one")]}, "Two": {"work": [append("two")]}})

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed", "Two": "landed"})
    assert report["integration"]["conflicts"]["agent"] == 1
    tests = shop.git("show", "ironworks/integration:tests/test_prices.py")
    assert "test_one" in tests and "test_two" in tests and "<<<<" not in tests
    assert shop.suite_passes("ironworks/integration")


@pytest.mark.spec("EN-4")
def test_a_run_killed_while_agents_work_is_finished_by_the_next_and_nothing_is_doubled(
    tmp_path: Path,
) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    plan = {
        "One": {"work": [[f"sh -c 'sleep 1; : {mark}'", *add("one")]]},
        "Two": {"work": [[f"sh -c 'sleep 1; : {mark}'", *add("two")]]},
    }
    shop = Workshop(tmp_path, plan)
    process = shop.start(shop.run_words())
    deadline = time.monotonic() + 120
    while not processes(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes(mark), "no agent was seen at work"
    process.kill()
    process.communicate(timeout=60)
    assert gone(mark) == []

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed", "Two": "landed"})
    log = shop.git("log", "--format=%s", "main..ironworks/integration").splitlines()
    assert log.count("Add one") == 1 and log.count("Add two") == 1
    assert shop.suite_passes("ironworks/integration")
    assert disks(tmp_path / "state") == [] and mounts(tmp_path) == []


@pytest.mark.spec("EN-5")
def test_a_test_that_failed_before_blames_nobody_and_is_told_to_the_worker(tmp_path: Path) -> None:
    read = "json.load(open(os.environ['IRONWORKS_INPUT']))['baseline']"
    told = f'python3 -c "import json, os; print({read})" > told.txt'
    shop = Workshop(tmp_path, {"Old": {"work": [[told, *add("old")]]}})

    code, report = shop.run()

    assert (code, states(report)) == (0, {"Old": "landed"})
    baseline = issue(report, "Old")["evidence"]["verification"]["baseline"]
    assert [name for name in baseline["failing"] if name.endswith("test_share_is_rounded_up")]
    assert "test_share_is_rounded_up" in shop.git("show", "ironworks/integration:told.txt")


@pytest.mark.spec("EN-6")
def test_an_agent_that_hangs_is_parked_as_stalled_and_holds_nobody_up(tmp_path: Path) -> None:
    mark = f"sleep 9{secrets.randbelow(10**8):08}"
    plan = {"Hang": {"work": [[mark]]}, "Fine": {"work": [add("fine")]}}
    shop = Workshop(tmp_path, plan, more="silence_s = 2\n[limits]\nattempts = 1\n")

    code, report = shop.run()

    assert (code, states(report)) == (1, {"Hang": "parked", "Fine": "landed"})
    assert issue(report, "Hang")["reason"] == "stalled"
    assert processes(mark) == []


@pytest.mark.spec("EN-7")
def test_a_background_process_of_an_agent_does_not_outlive_its_stage(tmp_path: Path) -> None:
    mark = f"sleep 8{secrets.randbelow(10**8):08}"
    started = f"setsid nohup {mark} >/dev/null 2>&1 & sleep 0.2; pgrep -f '{mark}' > pid.txt"
    shop = Workshop(tmp_path, {"Daemon": {"work": [[started, *add("daemon")]]}})

    code, report = shop.run()

    assert (code, states(report)) == (0, {"Daemon": "landed"})
    assert shop.git("show", "ironworks/integration:pid.txt").strip(), "the process never ran"
    assert processes(mark) == []


@pytest.mark.spec("EN-8")
def test_two_factories_started_together_each_win_some_and_none_is_worked_twice(tmp_path: Path) -> None:
    names = ["ant", "bee", "cow", "dog", "elk", "fox"]
    plan = {name: {"work": [["sleep 1", *add(name)]]} for name in names}
    shop = Workshop(tmp_path, plan, more="[limits]\nparallel = 1\n")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda state: shop.run(state=state), ["state-a", "state-b"])

    reports = [first[1], second[1]]
    assert [first[0], second[0]] == [0, 0]
    won = [{title for title, state in states(report).items() if state == "landed"} for report in reports]
    assert won[0] and won[1], "one factory won everything"
    assert won[0] | won[1] == set(names) and not won[0] & won[1]
    log = shop.git("log", "--format=%s", "main..ironworks/integration").splitlines()
    assert sorted(line for line in log if line.startswith("Add ")) == sorted(f"Add {name}" for name in names)
    assert shop.suite_passes("ironworks/integration")
