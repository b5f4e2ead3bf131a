import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tests.cli.conftest import SHA, Cli, queued, started

from ironworks.app.place import Place
from ironworks.cli.summary import as_markdown, as_text, freeze
from ironworks.core.handoffs import Conflicts, Landing
from ironworks.core.report import Catch, IntegrationReport, IssueReport, RunReport

HOSTILE = "a|b `c` <script>alert(1)</script> **x** [l](http://x)\n# head\x1b[31m\u202e"
REPORT = RunReport(
    run="run-1",
    issues=(
        IssueReport(id="one", title="First", state="landed", rounds=2, cost_usd=1.25),
        IssueReport(id="two", title="Second", state="parked", reason="over_budget", detail="$3 are spent"),
        IssueReport(id="three", title="Third", state="asked", detail="Which one?"),
    ),
    integration=IntegrationReport(
        branch="ironworks/integration",
        commit=SHA,
        merged=(Landing(issue="one", commit=SHA),),
        conflicts=Conflicts(git=2, structural=1, agent=3),
        suite_runs=4,
    ),
    caught=(
        Catch(by="verifier", code="out-of-scope", issue="one", what="README.md is out of scope"),
        *(Catch(by="baseline", code="known-failing", issue=f"i{n}", what="2 tests") for n in range(4)),
    ),
    cost_usd=4.25,
    costs={"work": 4.0, "review": 0.25},
    wall_s=75,
    critical_path_s=50,
    serial_s=150,
    next="ironworks pr merge integration",
)
TEXT = """\
run-1: 1 parked (over_budget), 1 landed, 1 asked; 1m15s, $4.25

Issues
  ISSUE  STATE                 ROUNDS  COST   TITLE
  one    landed                2       $1.25  First
  two    parked (over_budget)  0       $0.00  Second
  three  asked                 0       $0.00  Third

Waiting for you
  ISSUE  WHY
  two    $3 are spent
  three  Which one?

Caught on the way
  BY        ISSUE     WHAT
  baseline  4 issues  such as 2 tests
  verifier  one       README.md is out of scope

Integration
  branch                    ironworks/integration at aaaaaaaaaaaa
  landed                    1, 0 kept out, 4 suite runs
  files both sides changed  2 merged by git, 1 by declaration, 3 by an agent

Cost by stage
  work      $4.00
  review    $0.25
  together  $4.25

Time
  wall                 75.0 s
  critical path        50.0 s   the wall is 1.50 x of it
  one after the other  150.0 s  2.0 x of the wall

next: ironworks pr merge integration"""

History = Callable[..., None]


@pytest.mark.spec("DM-6")
def test_the_report_as_a_person_reads_it() -> None:
    assert as_text(REPORT) == TEXT


@pytest.mark.spec("DM-6")
def test_markdown_has_the_same_rows() -> None:
    document = as_markdown(REPORT)
    tokens = MarkdownIt().enable("table").parse(document)
    cells = [
        tokens[place + 1].content
        for place, token in enumerate(tokens)
        if token.type in {"td_open", "th_open"}
    ]
    for line in TEXT.splitlines():
        for cell in re.split(r"\s{2,}", line.strip()) if line.startswith("  ") else ():
            assert any(cell == MarkdownIt().renderInline(shown).replace("&quot;", '"') for shown in cells), (
                cell
            )


@pytest.mark.spec("DM-6")
def test_what_strangers_wrote_is_text_everywhere() -> None:
    issues = (IssueReport(id="one", title=HOSTILE, state="parked", reason="attempts", detail=HOSTILE),)
    caught = (Catch(by="triage", code="asked", issue="one", what=HOSTILE),)
    report = RunReport(run="r", issues=issues, caught=caught, next=f"ironworks show {HOSTILE!r}")
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(as_markdown(report))
    assert not re.search(r"<(script|strong|a|code)\b(?!>ironworks)", html.replace("<pre><code>", ""))
    assert html.count("<h1>") == 1
    for shown in (as_text(report), as_markdown(report)):
        assert "\x1b" not in shown and "\u202e" not in shown


def test_a_run_with_nothing_to_say_says_so() -> None:
    assert as_text(RunReport(run="r", issues=(), next="ironworks status")) == (
        "r: no issues; 0s, $0.00\n\nnext: ironworks status"
    )
    assert as_markdown(RunReport(run="r", issues=())).startswith("# r: no issues")


@pytest.mark.spec("DM-7")
def test_a_frozen_report_is_what_is_shown_from_then_on(place: Place, cli: Cli, history: History) -> None:
    history(started(), queued("one"))
    so_far = json.loads(cli("report", "--json").out)
    assert (so_far["run"], [issue["state"] for issue in so_far["issues"]]) == ("run-1", ["queued"])
    freeze(REPORT, place.logs / "run-1")
    assert cli("report").out == TEXT + "\n"
    assert json.loads(cli("report", "run-1", "--json").out) == REPORT.model_dump(mode="json")
    assert cli("report", "--markdown").out.strip() == as_markdown(REPORT).strip()
    assert (place.logs / "run-1" / "report.md").read_text("utf-8") == as_markdown(REPORT)


def test_wrong_words_are_explained(place: Place, cli: Cli, history: History) -> None:
    assert "no run has been started" in cli("report").err
    history(started())
    assert cli("report", "run-9").code == 2
    assert "exclude each other" in cli("report", "--markdown", "--json").err


def test_a_report_of_another_version_is_built_anew(place: Place, cli: Cli, history: History) -> None:
    history(started())
    folder: Path = place.logs / "run-1"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('{"run": "run-1", "novel": true}')
    assert json.loads(cli("report", "--json").out)["issues"] == []
