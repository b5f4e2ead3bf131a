"""`ironworks init`, unedited, on real packages: a green base, or one whose failing tests are named."""

from pathlib import Path

import pytest
from tests.packages.package import PACKAGES, Outcome, outcome_of, table

SAMPLE = ("iniconfig==2.3.0", "xmltodict==1.0.2", "brorand@1.1.0")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "packages.md"
ENOUGH = 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("CF-13")
@pytest.mark.parametrize("package", SAMPLE)
def test_a_package_of_each_kind_has_a_green_base(tmp_path: Path, package: str) -> None:
    found = outcome_of(package, tmp_path / "package")
    assert found.verdict == "green", found


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.spec("CF-13")
def test_most_packages_have_a_base_that_can_be_worked_on(tmp_path: Path) -> None:
    """`python -m tests.packages` writes the same into the page of results."""
    outcomes: list[Outcome] = []
    for number, package in enumerate(PACKAGES):
        outcomes.append(outcome_of(package, tmp_path / str(number)))
    print(table(outcomes))
    assert len(outcomes) == 24
    good = [found for found in outcomes if found.verdict != "no"]
    assert len(good) >= ENOUGH, table(outcomes)


def test_the_page_of_results_names_every_package() -> None:
    page = PAGE.read_text("utf-8")
    assert [package for package in PACKAGES if f"| {package} |" not in page] == []
