"""Every kind of catch, from the event that shows it."""

from typing import Any

import pytest

from ironworks.core import events as ev
from ironworks.core.events import Event
from ironworks.core.models import Stage
from ironworks.engine.catch import MAX_WHAT, catches, caught

SHA = "a" * 40


def stage(name: Stage, outcome: str = "done", **handoff: Any) -> Event:
    return ev.StageFinished(
        run="r", issue="one", stage=name, attempt=1, outcome=outcome, duration_s=1, handoff=handoff
    )


def finding(code: str, *, fatal: bool) -> dict[str, Any]:
    return {"code": code, "message": f"about {code}", "fatal": fatal}


VERIFIED = stage(
    "verify",
    verdict="passed",
    tests={"a": "passed", "b": "failed", "c": "error"},
    baseline={"failing": ["a", "b", "c", "gone"]},
)
CASES: list[tuple[Event, set[tuple[str, str]]]] = [
    (
        ev.WorkCaptured(run="r", issue="one", attempt=1, commit=SHA, tree=SHA, ghost=True),
        {("capture", "ghost-commit")},
    ),
    (ev.WorkCaptured(run="r", issue="one", attempt=1, commit=SHA, tree=SHA, ghost=False), set()),
    (
        stage(
            "verify",
            verdict="failed",
            findings=[
                finding("regression", fatal=True),
                finding("claim-contradicted", fatal=False),
                finding("protected-path", fatal=False),
            ],
        ),
        {("verifier", "regression"), ("verifier", "claim-contradicted")},
    ),
    (VERIFIED, {("baseline", "known-failing")}),
    (stage("verify", verdict="failed", tests={"b": "failed"}, baseline={"failing": ["b"]}), set()),
    (
        ev.FindingTried(run="r", issue="one", attempt=1, reproduced=False, claim="it breaks"),
        {("reviewer", "objection")},
    ),
    (
        ev.LimitReached(run="r", issue="one", stage="work", limit="memory", detail="d"),
        {("sandbox", "limit-memory")},
    ),
    (
        ev.FindingTried(run="r", issue="one", attempt=1, reproduced=True, claim="it breaks"),
        {("reviewer", "reproduced")},
    ),
    (
        stage(
            "review",
            verdict="request_changes",
            findings=[{"claim": "ugly"}, {"claim": "shown", "reproduction": {}}],
        ),
        {("reviewer", "objection")},
    ),
    (stage("review", verdict="approve", findings=[{"claim": "a note"}]), set()),
    (
        stage("integrate", conflicts={"git": 4, "structural": 0, "agent": 2}),
        {("integrator", "conflict-agent")},
    ),
    (stage("integrate", conflicts={"structural": 1}), {("integrator", "conflict-structural")}),
    (ev.IssueEvicted(run="r", issue="one", reason="culprit"), {("integrator", "culprit")}),
    (ev.IssueEvicted(run="r", issue="one", reason="conflict"), {("integrator", "conflict")}),
    (
        ev.EgressDenied(run="r", issue="one", target="x.example:443", reason="not-allowed"),
        {("gateway", "egress-denied")},
    ),
    (ev.IssueParked(run="r", issue="one", reason="over_budget"), {("budget", "over-budget")}),
    (ev.IssueParked(run="r", issue="one", reason="stalled"), {("watchdog", "stalled")}),
    (ev.IssueParked(run="r", issue="one", reason="looping"), {("watchdog", "looping")}),
    (ev.IssueParked(run="r", issue="one", reason="attempts"), {("verifier", "attempts")}),
    (ev.IssueParked(run="r", issue="one", reason="provider"), set()),
    (
        ev.LimitReached(run="r", issue="one", stage="work", limit="pids", detail="d"),
        {("sandbox", "limit-pids")},
    ),
    (
        ev.LimitReached(run="r", issue="one", stage="work", limit="output", detail="d"),
        {("sandbox", "limit-output")},
    ),
    (ev.ClaimLost(run="r", issue="one"), {("claims", "claimed-elsewhere")}),
    (ev.IssueAsked(run="r", issue="one", questions=("why?",)), {("triage", "asked")}),
    (ev.IssueRejected(run="r", issue="one", reason="no"), {("triage", "rejected")}),
    (ev.IssueMerged(run="r", issue="one", commit=SHA), set()),
    (stage("verify", findings="nonsense", tests=3, baseline=[]), set()),
]


@pytest.mark.spec("DM-6")
@pytest.mark.parametrize(("event", "wanted"), CASES)
def test_an_event_shows_what_was_caught_and_by_whom(event: Event, wanted: set[tuple[str, str]]) -> None:
    found = catches(event)
    assert {(catch.by, catch.code) for catch in found} == wanted
    assert all(catch.issue == "one" for catch in found)


def test_how_many_tests_failed_before_is_said() -> None:
    (catch,) = catches(VERIFIED)
    assert catch.what == "2 tests that fail on base already: held against nobody"


def test_what_a_stranger_wrote_is_one_bounded_line() -> None:
    (catch,) = catches(ev.IssueRejected(run="r", issue="one", reason="a\x1b\u202e\nb\n" + "x" * 5000))
    assert catch.what.startswith("a b x") and len(catch.what) == MAX_WHAT


def test_the_same_catch_is_told_once() -> None:
    denied = ev.EgressDenied(run="r", issue="one", target="x", reason="y")
    other = denied.model_copy(update={"issue": "two"})
    assert [catch.issue for catch in caught([denied, other, denied])] == ["one", "two"]


@pytest.mark.spec("DM-6")
@pytest.mark.parametrize("failing", [5, None, "a", [["a"]], [{}], {"a": 1}])
@pytest.mark.parametrize("outcome", ["failed", ["failed"], None])
def test_a_verification_that_makes_no_sense_is_no_catch(failing: object, outcome: object) -> None:
    handoff = {"verdict": "passed", "baseline": {"failing": failing}, "tests": {"a": outcome}}
    event = ev.StageFinished(
        run="r", issue="i", stage="verify", attempt=1, outcome="ok", duration_s=1, handoff=handoff
    )
    assert catches(event) == []
