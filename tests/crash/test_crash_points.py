"""SIGKILL at each crash point of a three-issue run, then a restart: as if nothing had happened."""

import math
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.e2e.census import disks, gone, mounts
from tests.e2e.workshop import Workshop, add, scripted_model, states

from ironworks.core.crash import CRASH_POINTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ALWAYS = (
    "work.after_agent",
    "integrate.after_ref",
    "integrate.after_pull",
    "flow.after_integrate",
    "run.after_report",
)
"""Points at which a fault was found once."""
SAMPLE = 8
SHARES = (0.0, 0.5, 1.0)
"""Kill at the first time a point is passed, half way, and at the last."""
SETTINGS = "[limits]\nparallel = 3\nlease_s = 3\n"


def append(name: str) -> list[str]:
    """A test at the end of a file that others append to as well: a conflict for the integrator.

    Each step does nothing where it was done: its worker may be killed before it has noted so.
    """
    test = (
        f"\\n    def test_{name}(self):\\n        from till.{name} import {name}\\n"
        f"\\n        self.assertEqual({name}(), 1)\\n"
    )
    return [
        f"printf 'def {name}():\\n    return 1\\n' > till/{name}.py",
        f"grep -q test_{name} tests/test_prices.py || printf '{test}' >> tests/test_prices.py",
        f"git add -A && {{ git diff --cached --quiet || git commit -qm 'Add {name}'; }}",
    ]


PLAN: dict[str, Any] = {
    "One": {"work": [append("one")], "seconds": 1, "calls_model": True},
    "Two": {"work": [append("two")]},
    "Three": {"work": [add("three")[:2]]},
}


def outcome(shop: Workshop, report: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on whether, or where, a run was killed."""
    assert shop.suite_passes("ironworks/integration")
    cases = ElementTree.parse(shop.folder / "report.xml").iter("testcase")
    log = shop.git("log", "--format=%s", "main..ironworks/integration").splitlines()
    return {
        "states": states(report),
        "pulls": sorted((pull["title"], pull["state"]) for pull in report["pull_requests"]),
        "closes": sorted(next(p["closes"] for p in report["pull_requests"] if p["kind"] == "integration")),
        "merged": sorted(landing["issue"] for landing in report["integration"]["merged"]),
        "tests": sorted(f"{case.get('classname')}.{case.get('name')}" for case in cases),
        "commits": sorted(line for line in log if line.startswith("Add ")),
    }


def left_over(shop: Workshop) -> list[str]:
    return [*gone(str(shop.folder)), *mounts(shop.folder), *disks(shop.folder / "state")]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with scripted_model(tmp_path_factory.mktemp("model")) as provider:
        yield SETTINGS + provider


def workshop(folder: Path, settings: str) -> Workshop:
    (folder / ".env").write_text("TILL_KEY=sk-test-till\n", "utf-8")
    return Workshop(folder, PLAN, more=settings)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, settings: str) -> dict[str, Any]:
    shop = workshop(tmp_path_factory.mktemp("undisturbed"), settings)
    names = shop.folder / "names"
    code, report = shop.run(crash_at=f"record:{names}")
    assert code == 0, report
    assert left_over(shop) == []
    return {**outcome(shop, report), "reached": Counter(names.read_text().split())}


@pytest.mark.spec("EN-9")
def test_a_three_issue_run_passes_every_named_crash_point(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["reached"].keys() == set(CRASH_POINTS)
    assert len(CRASH_POINTS) >= 40
    assert set(undisturbed["states"].values()) == {"landed"}


def check_point(point: str, hit: int, shop: Workshop, undisturbed: dict[str, Any]) -> None:
    code, _ = shop.run(crash_at=point, hit=hit)
    if hit > 1 and code == 0:
        return  # how often a point is passed depends on timing; this run ended before it was killed
    assert code == -signal.SIGKILL, f"{point} was not reached"
    assert gone(str(shop.folder)) == []

    code, report = shop.run()

    assert code == 0, report
    assert outcome(shop, report) == {key: undisturbed[key] for key in undisturbed if key != "reached"}
    assert left_over(shop) == []


@pytest.mark.spec("EN-4")
@pytest.mark.parametrize("point", sorted({*ALWAYS, *random.Random(2).sample(CRASH_POINTS, SAMPLE)}))
def test_a_run_killed_at_a_sampled_crash_point_ends_as_if_nothing_had_happened(
    point: str, tmp_path: Path, undisturbed: dict[str, Any], settings: str
) -> None:
    check_point(point, 1, workshop(tmp_path, settings), undisturbed)


@pytest.mark.soak
@pytest.mark.spec("EN-4")
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_run_killed_at_any_crash_point_ends_as_if_nothing_had_happened(
    point: str, share: float, tmp_path: Path, undisturbed: dict[str, Any], settings: str
) -> None:
    hit = max(1, math.ceil(share * undisturbed["reached"][point]))
    check_point(point, hit, workshop(tmp_path, settings), undisturbed)
