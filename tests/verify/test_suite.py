"""Suite runs: fresh, isolated, and believed only where they agree with themselves."""

from pathlib import Path

import pytest
from tests.verify.workshop import PYTEST, reporting, shell, workshop

from ironworks.verify.suite import pytest_options

BASE = {
    "m.py": "def one():\n    return 1\n",
    "tests/test_m.py": "import m\n\n\ndef test_one():\n    assert m.one() == 1\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
ONE = "unit::tests.test_m::test_one"


async def test_each_test_of_a_commit_gets_its_outcome(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        more = "import m\n\n\ndef test_two():\n    assert m.one() == 2\n\n\ndef test_three():\n    m.one()\n"
        work = shop.commit({"tests/test_more.py": more})
        run = await shop.suites().run(work, name="run", canary=True)
        assert run.problem == ""
        assert run.tests == {
            ONE: "passed",
            "unit::tests.test_more::test_two": "failed",
            "unit::tests.test_more::test_three": "passed",
        }
        assert run.canaries == {"unit": "sound"}
        assert run.exit_codes == {"unit": 1}
        assert "assert 1 == 2" in run.messages["unit::tests.test_more::test_two"]
        assert set(run.messages) == {"unit::tests.test_more::test_two"}
        assert run.duration_s > 0
        assert not await shop.backend.has_disk("run")


@pytest.mark.spec("VF-2")
async def test_a_run_that_contradicts_itself_is_not_believed(tmp_path: Path) -> None:
    bad = "<failure/>"
    cases = {
        "exit code 0 although 1 tests failed": reporting("", bad, code=0),
        "exit code 3 although no test failed": reporting("", code=3),
        "exit code 0 and no report": shell("true # {junit}"),
        "exit code 0 and a report without tests": reporting(code=0),
        "an unusable report: the report is empty": shell(": > {junit}"),
        "an unusable report: the report is not well-formed": shell("echo '<testsuite' > {junit}"),
        "not finished after 1 s": shell("sleep 60 # {junit}", timeout_s=1),
        "exit code 127 and no report": shell("no-such-runner {junit}"),
        "an unusable report: the report is neither": shell("echo all fine"),
    }
    async with workshop(tmp_path, BASE) as shop:
        for reason, suite in cases.items():
            run = await shop.suites(suite).run(shop.base, name="run")
            assert reason in run.problem, run
        good = await shop.suites(reporting("", bad, code=1)).run(shop.base, name="run")
        assert good.problem == ""
        assert good.failing == {"unit::c::t1"}
        spoken = await shop.suites(shell("echo 1..1; echo ok 1 - a")).run(shop.base, name="run")
        assert spoken.tests == {"unit::::a": "passed"}


@pytest.mark.spec("VF-3")
async def test_a_run_finds_nothing_of_an_earlier_one_and_no_network(tmp_path: Path) -> None:
    trace = (
        "set -e; test ! -e /work/trace; test ! -e /tmp/trace; test ! -e $HOME/trace;"
        "touch /work/trace /tmp/trace $HOME/trace;"
        "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 5)\" && exit 9;"
        "printf '<testsuite><testcase name=\"a\"/></testsuite>' > {junit}"
    )
    async with workshop(tmp_path, BASE) as shop:
        suites = shop.suites(shell(trace))
        for _ in range(2):
            assert (await suites.run(shop.base, name="run")).problem == ""


async def test_what_one_suite_leaves_running_is_gone_when_the_next_begins(tmp_path: Path) -> None:
    good = "printf '<testsuite><testcase name=\"a\"/></testsuite>' > {junit}"
    first = shell(f"setsid sleep 1234 >/dev/null 2>&1 & {good}", name="a")
    second = shell(f"grep -q 12[3]4 /proc/[0-9]*/cmdline || {good}", name="b")
    async with workshop(tmp_path, BASE) as shop:
        assert (await shop.suites(first, second).run(shop.base, name="run")).problem == ""


async def test_suites_run_in_their_folders_with_their_environment(tmp_path: Path) -> None:
    report = 'printf \'<testsuite><testcase name="%s"/></testsuite>\' "$(basename $PWD)-$WORD" > {junit}'
    first = shell(report, name="a", dir="tests", env={"WORD": "x"})
    second = shell(report, name="b", env={"WORD": "y"})
    async with workshop(tmp_path, BASE) as shop:
        run = await shop.suites(first, second).run(shop.base, name="run")
        assert run.tests == {"a::test::tests-x": "passed", "b::test::work-y": "passed"}
        gone = await shop.suites(first).run(shop.exactly({"m.py": ""}), name="run")
        assert gone.problem


async def test_one_module_that_cannot_be_imported_hides_no_other(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        work = shop.commit({"tests/test_broken.py": "import nowhere\n"})
        run = await shop.suites().run(work, name="run", canary=True)
        assert run.tests == {ONE: "passed", "unit::::tests.test_broken": "error"}
        assert run.canaries == {"unit": "sound"}


async def test_only_the_chosen_tests_run_where_the_runner_can_choose(tmp_path: Path) -> None:
    async with workshop(tmp_path, BASE) as shop:
        work = shop.commit({"tests/test_other.py": "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n"})
        chosen = frozenset({"unit::tests.test_other::test_b"})
        run = await shop.suites(PYTEST, shell("exit 1", name="never")).run(work, name="run", only=chosen)
        assert run.tests == {"unit::tests.test_other::test_b": "passed"}


def test_a_choice_that_cannot_be_spelled_runs_everything() -> None:
    assert pytest_options("-v", ["u::m::test_a[x y]", "u::m::test_b"]) == (
        "-v --continue-on-collection-errors -k 'test_a or test_b'"
    )
    assert "-k" not in pytest_options("", ["u::links::adds a link"])
    assert "-k" not in pytest_options("", [f"u::m::test_{n}" for n in range(1000)])
    assert pytest_options("", ["u::::tests.test_broken"]).endswith("-k test_broken")
