import ast
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ironworks.engine.report
from ironworks.core import events as ev
from ironworks.core.events import Event, Recorded
from ironworks.core.handoffs import Conflicts, Integration, Landing
from ironworks.core.models import Issue, PullRequest, Stage, Usage
from ironworks.core.policy import skip_reason
from ironworks.core.report import RunReport
from ironworks.core.states import STATES, State
from ironworks.engine.advice import next_command
from ironworks.engine.report import Merged, build_report

SHA = "a" * 40
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Log:
    """Events one second apart."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.found = [
            Recorded.model_construct(seq=seq, at=BEGAN + timedelta(seconds=seq), key=str(seq), event=event)
            for seq, event in enumerate(events)
        ]

    def events(self, *, run: str | None = None) -> list[Recorded]:
        return [item for item in self.found if run is None or item.event.run == run]


def started(parallel: int = 2, backlog: str = "") -> Event:
    settings = {"limits": {"parallel": parallel}}
    return ev.RunStarted(run="r", repository="/repo", base="main", backlog=backlog, pid=1, settings=settings)


def queued(issue: str) -> Event:
    return ev.IssueQueued(run="r", issue=issue, snapshot=Issue(id=issue, title=issue.title()))


def finished(issue: str, stage: Stage, agent_s: float = 0, suite_s: float = 0, **more: object) -> Event:
    fields = {"attempt": 1, "outcome": "done", "duration_s": agent_s + suite_s, **more}
    return ev.StageFinished(run="r", issue=issue, stage=stage, agent_s=agent_s, suite_s=suite_s, **fields)  # type: ignore[arg-type]


def landed(issue: str) -> list[Event]:
    return [
        queued(issue),
        ev.IssueClaimed(run="r", issue=issue, epoch=1, commit=SHA),
        *(
            ev.StageStarted(run="r", issue=issue, stage=stage, attempt=1)
            for stage in ("triage", "work", "verify", "review")
        ),
        ev.PullRequestOpened(run="r", issue=issue, branch=f"ironworks/{issue}", commit=SHA),
        ev.StageStarted(run="r", issue=issue, stage="integrate", attempt=1),
        ev.IssueLanded(run="r", issue=issue, branch="ironworks/integration", commit=SHA),
    ]


def parked(issue: str) -> list[Event]:
    return [
        queued(issue),
        ev.IssueClaimed(run="r", issue=issue, epoch=2, commit=SHA, stolen=True),
        ev.IssueParked(run="r", issue=issue, reason="over_budget", detail="3.00 of 3.00"),
    ]


def report(*events: Event, cores: int = 2) -> RunReport:
    return build_report(Log(events), "r", state_dir="/state", cores=cores)


@pytest.mark.spec("CLI-6")
def test_an_issue_is_reported_with_its_state_reason_branch_and_cost() -> None:
    usage = ev.UsageRecorded(
        run="r", issue="two", attempt_key="k", usage=Usage(provider="p", model="m", cost_usd=1.25)
    )
    found = report(started(), *landed("one"), *parked("two"), usage, usage)
    one, two = found.issues
    assert (one.id, one.title, one.state, one.branch, one.rounds) == (
        "one",
        "One",
        "landed",
        "ironworks/one",
        1,
    )
    assert (two.state, two.reason, two.detail, two.cost_usd) == ("parked", "over_budget", "3.00 of 3.00", 2.5)
    assert (found.cost_usd, found.repository, found.state_dir) == (2.5, "/repo", "/state")
    assert found.claims.model_dump() == {"won": 2, "lost": 0, "stolen": 1}


@pytest.mark.spec("CLI-6")
def test_the_evidence_is_the_last_verification_and_review() -> None:
    found = report(
        *landed("one"),
        finished("one", "verify", handoff={"verdict": "failed"}),
        finished("one", "verify", handoff={"verdict": "passed"}, attempt=2),
        finished("one", "review", handoff={"verdict": "approve"}),
    )
    assert found.issues[0].evidence == {
        "verification": {"verdict": "passed"},
        "review": {"verdict": "approve"},
    }
    stages = [(stage.stage, stage.attempt) for stage in found.issues[0].stages]
    assert stages == [("verify", 1), ("review", 1), ("verify", 2)]


@pytest.mark.spec("CLI-6")
def test_stages_are_told_in_the_order_in_which_they_began() -> None:
    resolver = ev.StageStarted(run="r", issue="one", stage="integrate", attempt=2)
    found = report(
        *landed("one"), resolver, finished("one", "integrate", attempt=2), finished("one", "integrate")
    )
    assert [stage.attempt for stage in found.issues[0].stages] == [1, 2]


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize(
    ("last", "code"),
    [
        (None, 1),
        (ev.IssueAsked(run="r", issue="x", questions=("?",)), 0),
        (ev.IssueRejected(run="r", issue="x", reason="no"), 0),
        (ev.IssueParked(run="r", issue="x", reason="attempts"), 1),
        (ev.IssueFailed(run="r", issue="x", code="git", detail="d"), 3),
        (ev.ClaimLost(run="r", issue="x"), 0),
    ],
)
def test_the_exit_code_is_0_only_when_every_issue_rests_well(last: Event | None, code: int) -> None:
    way = [queued("x"), ev.IssueClaimed(run="r", issue="x", epoch=1, commit=SHA)]
    way.append(ev.StageStarted(run="r", issue="x", stage="triage", attempt=1))
    assert report(*landed("one"), *way, *([last] if last else [])).exit_code == code


def test_an_empty_run_is_good_and_says_what_to_type() -> None:
    found = report(started())
    assert (found.exit_code, found.next, found.issues) == (0, "ironworks status", ())


@pytest.mark.spec("CLI-6")
def test_landed_and_evicted_come_from_the_issues_and_sums_from_the_integrator() -> None:
    def sitting(suites: int) -> dict[str, object]:
        merged = (Landing(issue="one", commit=SHA),)
        conflicts = Conflicts(git=1, agent=suites)
        return Integration(
            branch="b", commit="c" * 40, merged=merged, conflicts=conflicts, suite_runs=suites
        ).model_dump(mode="json")

    evicted = [
        *landed("two")[:-1],
        ev.IssueEvicted(run="r", issue="two", reason="culprit", detail="red"),
    ]
    found = report(
        *landed("one"),
        *evicted,
        finished("one", "integrate", handoff=sitting(1)),
        finished("one", "integrate", handoff=sitting(1), attempt=2),
        finished("two", "integrate", handoff=sitting(2)),
        finished("two", "integrate", handoff={"branch": 3}),
    ).integration
    assert ([one.issue for one in found.merged], [two.issue for two in found.evicted]) == (["one"], ["two"])
    assert (found.suite_runs, found.conflicts.git, found.conflicts.agent) == (3, 2, 3)
    assert (found.branch, found.commit) == ("b", "c" * 40)


@pytest.mark.spec("CLI-7")
@pytest.mark.parametrize(
    ("parallel", "cores", "expected"),
    [
        (1, 8, 62.0),  # all chains one after the other
        (2, 8, 40.0),  # the longest chain and its own merging
        (2, 1, 50.0),  # one core for all CPU seconds
    ],
)
def test_the_critical_path_is_the_greatest_lower_bound(parallel: int, cores: int, expected: float) -> None:
    events = [
        started(parallel),
        queued("a"),
        queued("b"),
        finished("a", "work", agent_s=25, cpu_s=20),
        finished("a", "verify", suite_s=10, cpu_s=10),
        finished("b", "work", agent_s=17, cpu_s=10),
        finished("b", "verify", suite_s=10, cpu_s=10),
        finished("a", "integrate", suite_s=5),
        finished("b", "integrate", suite_s=5),
    ]
    assert report(*events, cores=cores).critical_path_s == expected


@pytest.mark.spec("CLI-7")
def test_a_long_integration_is_waited_for_after_the_shortest_chain() -> None:
    events = [queued("a"), queued("b"), finished("a", "work", agent_s=3), finished("b", "work", agent_s=2)]
    events += [finished("a", "integrate", agent_s=4, suite_s=5), finished("b", "integrate", suite_s=9)]
    assert report(started(9), *events).critical_path_s == 20.0


def test_wall_time_leaves_out_the_time_when_no_factory_ran() -> None:
    gap = Log([started(), queued("a"), started(), queued("b")])
    gap.found = [
        item if item.seq < 2 else item.model_copy(update={"at": item.at + timedelta(hours=5)})
        for item in gap.found
    ]
    assert build_report(gap, "r").wall_s == 2.0


def test_pull_requests_of_other_runs_are_left_out() -> None:
    def pull(id: str, run: str, closes: tuple[str, ...] = ()) -> PullRequest:
        return PullRequest(
            id=id, title="t", body="", branch="b", base="main", head=SHA, run=run, closes=closes
        )

    pulls = [pull("one", "old"), pull("else", "old"), pull("new", "r"), pull("integration", "old", ("one",))]
    found = build_report(Log(landed("one")), "r", pulls=pulls)
    assert [pull.id for pull in found.pull_requests] == ["one", "new", "integration"]


def test_an_earlier_stop_does_not_spoil_a_later_end() -> None:
    stop = ev.RunFinished(run="r", exit_code=1, stopped=True)
    end = ev.RunFinished(run="r", exit_code=0)
    found = report(started(), queued("one"), stop, started(), *landed("one")[1:], end)
    assert (found.exit_code, found.stopped) == (0, False)


@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize(
    ("issues", "command"),
    [
        ([("a", "landed", ""), ("b", "asked", "")], "ironworks pr merge integration"),
        ([("a", "landed", ""), ("b", "parked", "over_budget")], "ironworks retry b --budget-usd 6"),
        ([("a", "parked", "looping"), ("b", "failed", "")], "ironworks retry b"),
        ([("a", "asked", "")], "ironworks answer a TEXT"),
        ([("a", "working", ""), ("b", "failed", "")], "ironworks run --backlog 'my backlog.md'"),
        ([("a", "merged", "")], "ironworks status"),
        ([], "ironworks status"),
    ],
)
def test_the_next_command_helps_the_worst_first(issues: list[tuple[str, State, str]], command: str) -> None:
    assert next_command(issues, "my backlog.md") == command


def test_every_state_has_a_next_command() -> None:
    assert all(next_command([("x", state, "")], "").startswith("ironworks ") for state in STATES)


def test_a_report_needs_no_durable_engine() -> None:
    tree = ast.parse(Path(ironworks.engine.report.__file__).read_text("utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name and ("dbos" in name or name.startswith("ironworks.store")) for name in names)


@pytest.mark.spec("DM-6")
def test_costs_are_by_stage_and_serial_time_is_all_of_it() -> None:
    made = ev.BaseSnapshotMade(run="r", commit=SHA, snapshot="s", duration_s=4, prepare_s=3)
    found = report(
        started(),
        made,
        queued("one"),
        finished("one", "work", agent_s=5, cost_usd=1.5),
        finished("one", "work", agent_s=2, cost_usd=0.25),
        finished("one", "review", agent_s=1, cost_usd=0.5),
        finished("one", "verify", suite_s=4),
    )
    assert found.costs == {"work": 1.75, "review": 0.5}
    assert found.serial_s == 3 + 5 + 2 + 1 + 4
    assert found.critical_path_s == 3 + 12


@pytest.mark.spec("DM-6")
def test_the_logs_of_two_factories_make_one_report() -> None:
    """The loser's view of an issue does not matter, whenever it was written."""

    def of(run: str, *events: Event) -> list[Recorded]:
        return Log([event.model_copy(update={"run": run}) for event in events]).found

    lost = [
        ev.ClaimLost(run="r", issue="one"),
        ev.IssueSkipped(run="r", issue="one", reason="landed already"),
    ]
    first = of("a", started(3), *landed("one"), queued("two"), ev.ClaimLost(run="r", issue="two"))
    second = of("b", started(2), queued("one"), *lost, *parked("two"))
    found = build_report(Merged([first, second]), "both", cores=8)
    assert {issue.id: issue.state for issue in found.issues} == {"one": "landed", "two": "parked"}
    assert (found.claims.won, found.claims.lost) == (2, 2)
    assert [landing.issue for landing in found.integration.merged] == ["one"]
    assert found.exit_code == 1


@pytest.mark.spec("DM-6")
def test_factories_side_by_side_have_all_their_pipelines() -> None:
    def chain(run: str, issue: str, parallel: int) -> list[Recorded]:
        events = [started(parallel), finished(issue, "work", agent_s=10)]
        return Log([event.model_copy(update={"run": run}) for event in events]).found

    both = build_report(Merged([chain("a", "one", 1), chain("b", "two", 1)]), "both", cores=8)
    assert (both.critical_path_s, both.serial_s) == (10, 20)


def test_what_an_earlier_run_landed_still_waits_to_be_merged() -> None:
    pull = PullRequest(id="one", title="", body="", branch="b", base="main", head=SHA, state="landed")
    reason = skip_reason(Issue(id="one", title="One"), [pull])
    assert next_command([("one", "skipped", reason)], "b.md") == "ironworks pr merge integration"
    assert next_command([("one", "skipped", "closed")], "b.md") == "ironworks status"
