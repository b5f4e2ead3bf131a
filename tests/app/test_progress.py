from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from ironworks.app.progress import STAGE_STATES, STATE_AFTER, RunProgress, progress
from ironworks.core import events as ev
from ironworks.core.events import Event, Recorded, state_of
from ironworks.core.models import Issue, Stage, Usage
from ironworks.core.states import State

SHA = "a" * 40
ISSUE = Issue(id="one", title="One")
SAMPLES: list[Event] = [
    ev.IssueQueued(run="r", issue="one", snapshot=ISSUE),
    ev.IssueClaimed(run="r", issue="one", epoch=1, commit=SHA),
    ev.ClaimLost(run="r", issue="one"),
    *(ev.StageStarted(run="r", issue="one", stage=stage, attempt=1) for stage in get_args(Stage)),
    ev.StageFinished(run="r", issue="one", stage="work", attempt=1, outcome="done", duration_s=1),
    ev.WorkCaptured(run="r", issue="one", attempt=1, commit=SHA, tree=SHA, ghost=False),
    ev.FindingTried(run="r", issue="one", attempt=1, reproduced=True, claim="c"),
    ev.LimitReached(run="r", issue="one", stage="work", limit="pids", detail="d"),
    ev.PullRequestOpened(run="r", issue="one", branch="b", commit=SHA),
    ev.IssueLanded(run="r", issue="one", branch="i", commit=SHA),
    ev.IssueMerged(run="r", issue="one", commit=SHA),
    ev.IssueAsked(run="r", issue="one", questions=("why?",)),
    ev.IssueRejected(run="r", issue="one", reason="no"),
    ev.IssueSkipped(run="r", issue="one", reason="closed"),
    ev.IssueParked(run="r", issue="one", reason="looping", detail="d"),
    ev.IssueEvicted(run="r", issue="one", reason="culprit"),
    ev.IssueFailed(run="r", issue="one", code="git", detail="d"),
    ev.AnswerGiven(run="r", issue="one", text="t"),
    ev.IssuePaused(run="r", issue="one"),
    ev.IssueResumed(run="r", issue="one"),
    ev.BudgetRaised(run="r", issue="one", budget_usd=6),
    ev.UsageRecorded(
        run="r", issue="one", attempt_key="k", usage=Usage(provider="p", model="m", cost_usd=0.25)
    ),
    ev.EgressDenied(run="r", issue="one", target="x", reason="y"),
]


def rows(events: list[Event]) -> list[tuple[int, float, dict[str, Any]]]:
    return [(seq, float(seq), event.model_dump(mode="json")) for seq, event in enumerate(events, 1)]


def recorded(events: list[Event]) -> list[Recorded]:
    now = datetime.now(UTC)
    return [
        Recorded.model_construct(seq=seq, at=now, key=str(seq), event=event)
        for seq, event in enumerate(events)
    ]


@given(st.lists(st.sampled_from(SAMPLES), max_size=30))
def test_the_light_fold_says_what_the_core_says(events: list[Event]) -> None:
    issues = progress(rows(events)).issues
    state: tuple[State, str] = (issues["one"].state, issues["one"].reason) if issues else ("queued", "")
    assert state == state_of(recorded(events))


def test_every_kind_of_event_that_moves_an_issue_is_known() -> None:
    moving = {event.kind: event.state for event in SAMPLES if event.state and event.kind != "StageStarted"}
    assert moving == STATE_AFTER
    assert {
        event.stage: event.state for event in SAMPLES if isinstance(event, ev.StageStarted)
    } == STAGE_STATES
    kinds = {get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(ev.AnyEvent)[0])}
    of_runs = {"RunStarted", "RunFinished", "BaseSnapshotMade", "BaselineTaken"}
    assert kinds - of_runs == {event.kind for event in SAMPLES}


def test_cost_rounds_and_questions_are_gathered() -> None:
    found = progress(rows([*SAMPLES, SAMPLES[-2]])).issues["one"].as_dict()
    assert (found["cost_usd"], found["rounds"], found["questions"], found["title"]) == (
        0.5,
        1,
        ["why?"],
        "One",
    )


def test_a_resting_issue_says_its_way_out() -> None:
    parked = [*SAMPLES[:2], ev.IssueParked(run="r", issue="one", reason="over_budget", detail="3 of 3")]
    found = progress(rows(parked)).issues["one"].as_dict()
    assert found["way_out"] == "ironworks retry one --budget-usd 6"
    assert found["detail"] == "3 of 3"


def test_a_run_that_starts_again_is_unfinished_again() -> None:
    start = ev.RunStarted(run="r", repository="/r", base="main", backlog="b.md", pid=7)
    end = ev.RunFinished(run="r", exit_code=1, stopped=True)
    found = progress(rows([start, end, start]))
    assert (found.started_s, found.finished_s, found.exit_code, found.pid) == (1.0, None, None, 7)
    assert progress(rows([start, end])).exit_code == 1


def test_pausing_the_run_and_pausing_an_issue_are_two_things() -> None:
    found = progress(rows([SAMPLES[0], ev.IssuePaused(run="r")]))
    assert (found.paused, found.issues["one"].paused) == (True, False)
    assert RunProgress().cost_usd == 0
