"""A script that the test command names is part of the tests: whoever edits it does not judge himself."""

from pathlib import Path

import pytest
from tests.verify.test_verdict import BASE, NEW, judge, told
from tests.verify.workshop import shell, workshop

RUNNER = """\
import sys, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--junitxml", sys.argv[1], *sys.argv[2:]]))
"""
BLIND = RUNNER.replace("*sys.argv[2:]", "'--deselect', 'tests/test_calc.py::test_add', *sys.argv[2:]")
LENIENT = f"""\
{RUNNER.splitlines()[0]}
class Lenient:
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if item.name == "test_add":
            report.outcome = "passed"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--junitxml", sys.argv[1]], [Lenient()]))
"""
BROKEN = {"calc.py": "def add(a, b):\n    return 1\n", **NEW}


@pytest.mark.spec("VF-5")
@pytest.mark.parametrize("runner", [BLIND, LENIENT])
async def test_work_that_edits_the_script_the_command_names_is_judged_by_bases_own(
    runner: str, tmp_path: Path
) -> None:
    async with workshop(tmp_path, {**BASE, "check.py": RUNNER}) as shop:
        verifier = shop.verifier(shell("python3 ./check.py {junit}"))

        judged = await judge(verifier, shop.commit({**BROKEN, "check.py": runner}))

        assert judged.verdict == "failed"
        assert "base-test" in told(judged)
        assert "test-configuration" in told(judged, fatal=False)
