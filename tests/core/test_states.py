"""The life of an issue as a table."""

from datetime import UTC, datetime
from typing import get_args

import pytest

from ironworks.core.events import EVENT, Event, Recorded, state_of
from ironworks.core.models import Issue
from ironworks.core.states import (
    RESTING,
    STATES,
    TRANSITIONS,
    WAYS_OUT,
    EvictReason,
    ParkReason,
    State,
    way_out,
)

ONE = Issue(id="one", title="One")
SHA = "a" * 40


def log(*events: Event) -> list[Recorded]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return [Recorded.model_construct(seq=n, at=at, key=str(n), event=event) for n, event in enumerate(events)]


@pytest.mark.spec("EN-21")
def test_every_rest_with_every_reason_has_a_way_out_that_names_a_command() -> None:
    reasons: dict[State, tuple[str, ...]] = {"parked": get_args(ParkReason), "evicted": get_args(EvictReason)}
    for state in RESTING:
        for reason in reasons.get(state, ("",)):
            way = way_out(state, reason)
            assert way is not None and way.command.startswith("ironworks "), (state, reason)
    assert {state for state, _ in WAYS_OUT} == RESTING


@pytest.mark.spec("EN-21")
def test_every_state_but_merged_can_be_left_and_every_state_can_be_reached() -> None:
    assert TRANSITIONS.keys() == set(STATES)
    assert [state for state in STATES if not TRANSITIONS[state]] == ["merged"]
    reached: set[State] = {"queued"}
    while more := {new for old in reached for new in TRANSITIONS[old]} - reached:
        reached |= more
    assert reached == set(STATES)


def event(kind: str, **facts: object) -> Event:
    return EVENT.validate_python({"kind": kind, "run": "run-1", "issue": "one", **facts})


QUEUED = event("IssueQueued", snapshot=ONE)
CLAIMED = event("IssueClaimed", epoch=1, commit=SHA)
TRIAGING = event("StageStarted", stage="triage", attempt=1)
PARKED = event("IssueParked", reason="stalled")
LANDED = event("IssueLanded", branch="ironworks/integration", commit=SHA)
LOST = event("ClaimLost")


@pytest.mark.spec("EN-22")
def test_the_state_is_folded_from_the_events() -> None:
    assert state_of([]) == ("queued", "")
    assert state_of(log(QUEUED, CLAIMED, TRIAGING)) == ("triaging", "")
    assert state_of(log(QUEUED, CLAIMED, TRIAGING, PARKED)) == ("parked", "stalled")
    assert state_of(log(QUEUED, CLAIMED, TRIAGING, PARKED, QUEUED)) == ("queued", "")


@pytest.mark.spec("EN-22")
def test_an_event_that_the_table_forbids_changes_nothing() -> None:
    assert state_of(log(QUEUED, LANDED)) == ("queued", "")
    assert state_of(log(QUEUED, LOST, LANDED))[0] == "lost_claim"
