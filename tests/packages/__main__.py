"""Tries every package and writes docs/reference/packages.md: `python -m tests.packages`."""

import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.packages.package import PACKAGES, Outcome, outcome_of, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "packages.md"
TEXT = """\
# Real packages

`ironworks init`, unedited, on packages that ship their tests, as the registries serve them: is the base
green? `described`: the suite runs, and the tests that fail are named. `no`: the reason is below. `make
soak` does this anew and wants {enough} of {all}; `python -m tests.packages` writes this page. What npm
leaves out of a package, its `.gitignore`, is put back.

{good} of {all} can be worked on as they are ({green} green). {day}, commit {commit}, Python 3.11, Node 20.

{table}
{reasons}"""


def main() -> None:
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, package in enumerate(PACKAGES):
            outcomes.append(outcome_of(package, Path(folder, str(number))))
            print(table(outcomes[-1:]).splitlines()[-1], flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    bad = [found for found in outcomes if found.verdict == "no"]
    reasons = [f"- {found.package}: {' '.join(found.problem.split())[:300]}" for found in bad]
    text = TEXT.format(
        enough=20,
        all=len(outcomes),
        good=len(outcomes) - len(bad),
        green=sum(found.verdict == "green" for found in outcomes),
        day=datetime.now(UTC).date(),
        commit=commit.stdout.strip(),
        table=table(outcomes),
        reasons="\n".join(["", "Why not:", "", *reasons, ""]) if reasons else "",
    )
    PAGE.write_text(text, "utf-8")


main()
