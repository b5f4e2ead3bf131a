"""The canary is planted where tests are, and its fate is told from the results."""

import pytest
from tests.verify.workshop import shell

from ironworks.core.models import TestOutcome
from ironworks.verify.canary import Canary

SUITE = shell("python3 -m pytest --junitxml={junit}")
FILES = ["a.py", "tests/test_a.py", "tests/test_b.py", "other/test_c.py"]


def planted() -> Canary:
    canary = Canary.plant(SUITE, FILES)
    assert canary
    return canary


@pytest.mark.spec("VF-4")
def test_it_lies_among_most_of_the_tests_under_a_name_nobody_guesses() -> None:
    one, other = planted(), planted()
    assert one.path.startswith("tests/test_")
    assert one.path != other.path
    assert {one.nonce, one.passes, one.fails}.isdisjoint({other.nonce, other.passes, other.fails})
    compile(one.source, one.path, "exec")


def test_it_is_named_as_the_projects_tests_are() -> None:
    canary = Canary.plant(shell("x", dir="py"), ["py/a_test.py", "test_b.py"])
    assert canary
    assert canary.path.startswith("py/zz")
    assert canary.path.endswith("_test.py")


@pytest.mark.parametrize("command", ["pytest -x", "pytest -qx", "pytest --maxfail=3", "pytest --exitfirst"])
def test_a_suite_that_stops_at_the_first_failure_gets_none(command: str) -> None:
    assert Canary.plant(shell(command), FILES) is None


NODE = "node --test --test-reporter=junit --test-reporter-destination={junit}"


@pytest.mark.spec("VF-4")
@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["src/a.js", "src/a.test.js", "b.js"], "src/{}.test.js"),
        (["lib/a_test.mjs"], "lib/{}_test.mjs"),
        (["lib/test-a.cjs"], "lib/test-{}.cjs"),
        (["test/helper.js", "test/a.js", "test/b.test.js"], "test/{}.js"),
        (["node_modules/a/test/b.test.js", "x.test.js"], "{}.test.js"),
        (["test_a.py", "spec/a-test.js"], "spec/{}-test.js"),
    ],
)
def test_one_for_node_is_named_as_its_tests_are(files: list[str], path: str) -> None:
    canary = Canary.plant(shell(NODE), files)
    assert canary and canary.path == path.format(canary.nonce)


@pytest.mark.parametrize("files", [["a.js"], ["src/latest.js"], ["a.test.ts"], ["test_a.py"]])
def test_where_no_test_of_nodes_is_there_is_none(files: list[str]) -> None:
    assert Canary.plant(shell(NODE), files) is None


@pytest.mark.parametrize("option", ["only", "name-pattern=x", "skip-pattern x", "shard=1/2", "force-exit"])
def test_a_node_suite_that_chooses_its_tests_gets_none(option: str) -> None:
    assert Canary.plant(shell(NODE.replace("--test ", f"--test --test-{option} ")), ["a.test.js"]) is None


@pytest.mark.parametrize("files", [[], ["a.test.js"], ["src/tests.py"]])
def test_where_no_python_test_is_there_is_none(files: list[str]) -> None:
    assert Canary.plant(SUITE, files) is None


@pytest.mark.spec("VF-4")
@pytest.mark.parametrize(
    ("passes", "fails", "state"),
    [
        ("passed", "failed", "sound"),
        ("passed", "passed", "lied"),
        ("failed", "failed", "lied"),
        ("passed", "error", "lied"),
        ("passed", "skipped", "lied"),
        ("passed", None, "lied"),
        (None, "failed", "lied"),
        (None, None, "absent"),
    ],
)
def test_it_is_sound_only_when_both_are_told_as_they_are(
    passes: TestOutcome | None, fails: TestOutcome | None, state: str
) -> None:
    canary = planted()
    where = f"unit::tests.test_{canary.nonce}.Test{canary.nonce}::test_"
    results: dict[str, TestOutcome] = {"unit::tests.test_a::test_x": "passed"}
    for test, outcome in ((canary.passes, passes), (canary.fails, fails)):
        if outcome:
            results[where + test] = outcome
    found, rest = canary.split(results)
    assert found == state
    assert rest == {"unit::tests.test_a::test_x": "passed"}
