"""The hidden suite of a run: once, after the report, seen by no agent, and with no say in anything."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.census import disks, gone
from tests.e2e.test_control import until
from tests.e2e.workshop import Workshop, add, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUITE = """\
import unittest


class TestOne(unittest.TestCase):
    def test_it_is_there(self):
        from till.one import one

        self.assertTrue(one)

    def test_it_is_one(self):
        from till.one import one

        self.assertEqual(one(), 1)
"""
COMMAND = "cd {hidden} && PYTHONPATH=/work python3 /work/check.py {junit}"
BEGINS = "the hidden suite grades"
PLAN: dict[str, Any] = {"One": {"work": [add("one")]}}


def graded(folder: Path, plan: dict[str, Any] = PLAN, *, command: str = COMMAND) -> Workshop:
    """A workshop whose operator keeps a hidden suite."""
    suite = folder / "kept apart" / "test_mark_of_the_hidden.py"
    suite.parent.mkdir()
    suite.write_text(SUITE, "utf-8")
    where, how = json.dumps(str(suite.parent)), json.dumps(command)
    return Workshop(folder, plan, more=f"[project]\nhidden_tests = {where}\nhidden_command = {how}")


def run(shop: Workshop, **crash: Any) -> tuple[int, dict[str, Any], str]:
    code, out, err = shop.call(shop.run_words(), **crash)
    return code, json.loads(out) if out else {}, err


def stored(shop: Workshop, report: dict[str, Any], name: str = "grade") -> Any:
    return json.loads((shop.folder / "state" / "logs" / report["run"] / f"{name}.json").read_text("utf-8"))


@pytest.mark.spec("DM-7")
def test_a_run_is_graded_none_before_and_all_after_and_the_report_knows_nothing_of_it(tmp_path: Path) -> None:
    shop = graded(tmp_path)
    words = ["grade", "--config", str(shop.config), "--json"]
    code, out, err = shop.ironworks(*words)
    assert (code, [(grade["passed"], grade["total"]) for grade in json.loads(out)]) == (1, [(0, 2)]), err

    code, report, err = run(shop)

    assert (code, states(report)) == (0, {"One": "landed"})
    grade = report.pop("grade")
    assert (grade["passed"], grade["failed"], grade["total"]) == (2, 0, 2)
    assert grade == stored(shop, report) and report == stored(shop, report, "report")
    assert err.count(BEGINS) == 1 and "2 of 2" in err
    code, out, _ = shop.ironworks(*words, "ironworks/integration")
    assert (code, json.loads(out)) == (0, [grade])
    assert disks(tmp_path / "state") == []


@pytest.mark.spec("VF-14")
def test_no_agent_finds_the_suite(tmp_path: Path) -> None:
    """A file beside the work shows that the worker would find it."""
    here = "/run /work /home /tmp /agent /ironworks"
    look = [
        "touch till/mark_of_the_hidden.txt",
        "find / -name '*mark_of_the_hidden*' -not -path '/proc/*' 2>/dev/null > census.txt || true",
        f"grep -rl 'test_it_is_ther[e]' {here} 2>/dev/null >> census.txt || true",
    ]
    shop = graded(tmp_path, {"One": {"work": [[*look, *add("one")]]}})

    _, report, _ = run(shop)

    assert (states(report), report["grade"]["passed"]) == ({"One": "landed"}, 2)
    found = shop.git("show", "ironworks/integration:census.txt").split()
    assert found == ["/work/till/mark_of_the_hidden.txt"]


@pytest.mark.spec("DM-7")
@pytest.mark.parametrize("wrong", ["missing", "unusable", "links alone"])
def test_a_suite_that_cannot_be_used_changes_neither_report_nor_exit_code(wrong: str, tmp_path: Path) -> None:
    shop = graded(tmp_path, command="exit 3 # {junit}" if wrong == "unusable" else COMMAND)
    if wrong == "missing":
        shutil.rmtree(tmp_path / "kept apart")
    elif wrong == "links alone":
        (tmp_path / "kept apart" / "test_link.py").symlink_to("/etc/passwd")
        (tmp_path / "kept apart" / "test_mark_of_the_hidden.py").unlink()

    code, report, _ = run(shop)

    assert (code, states(report)) == (0, {"One": "landed"})
    grade = report.pop("grade")
    assert (grade["passed"], grade["total"]) == (0, 0) and grade["problem"]
    assert grade == stored(shop, report) and report == stored(shop, report, "report")


@pytest.mark.spec("DM-7")
def test_somebody_who_stops_a_suite_that_hangs_gets_the_report_all_the_same(tmp_path: Path) -> None:
    mark = "sleep 7003"
    shop = graded(tmp_path, command=f"{mark} # {{junit}}")
    process = shop.start(shop.run_words())
    until(lambda: list(tmp_path.glob("state/sandboxes/disks/grade-*")), "it is graded")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    report = json.loads(out)
    assert (process.returncode, report["stopped"], states(report)) == (0, False, {"One": "landed"})
    assert "grade" not in report and b"ironworks grade" in err
    assert gone(mark) == [] and disks(tmp_path / "state") == []


@pytest.mark.spec("DM-7", "EN-34")
@pytest.mark.parametrize(
    ("point", "again"), [("run.after_report", 1), ("run.after_freeze", 1), ("run.before_told", 0)]
)
def test_a_run_killed_after_its_end_is_told_again_and_graded_once(
    point: str, again: int, tmp_path: Path
) -> None:
    shop = graded(tmp_path)
    code, _, first = run(shop, crash_at=point)
    assert code == -signal.SIGKILL
    [logs] = (tmp_path / "state" / "logs").iterdir()
    was = (logs / "report.json").read_text("utf-8") if point != "run.after_report" else ""

    code, report, second = run(shop)

    assert (code, states(report), report["run"]) == (0, {"One": "landed"}, logs.name)
    assert (first.count(BEGINS), second.count(BEGINS)) == (1 - again, again)
    assert report.pop("grade")["passed"] == 2
    assert report == stored(shop, report, "report")
    assert was in {"", (logs / "report.json").read_text("utf-8")}
    code, later, third = run(shop)
    assert (code, states(later)) == (0, {"One": "skipped"}) and later["run"] != report["run"]
    assert BEGINS not in third


@pytest.mark.spec("EN-34")
def test_a_run_killed_after_its_end_takes_in_what_is_new(tmp_path: Path) -> None:
    shop = graded(tmp_path)
    assert run(shop, crash_at="run.after_freeze")[0] == -signal.SIGKILL
    shop.plan({**PLAN, "Two": {"work": [add("two")]}})
    shop.backlog.write_text("## One\n\nPlease.\n\n## Two\n\nPlease.\n", "utf-8")

    code, report, err = run(shop)

    assert (code, states(report)) == (0, {"One": "landed", "Two": "landed"})
    assert report["grade"]["commit"] == report["integration"]["commit"]
    assert err.count(BEGINS) == 1
    report.pop("grade")
    assert report == stored(shop, report, "report")


@pytest.mark.spec("EN-34")
def test_a_run_killed_after_it_ended_badly_ends_as_badly_again(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"review": {"verdict": "approve"}, "work": [["true"]]}})
    assert shop.run(crash_at="run.after_report")[0] == -signal.SIGKILL

    code, report = shop.run()

    assert (code, states(report)) == (1, {"One": "parked"})
