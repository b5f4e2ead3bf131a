"""Decisions as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.core.handoffs import ReviewFinding, ReviewReport, TriageReport
from ironworks.core.models import Finding, Issue, IssueWishes, PullRequest
from ironworks.core.policy import after_triage, blocking, loop_detected, order_issues, skip_reason

NUMBER = st.integers(0, 6)


def issue(id: str, *depends_on: str, priority: int = 0, closed: bool = False) -> Issue:
    wishes = IssueWishes(depends_on=depends_on, priority=priority)
    return Issue(id=id, title=id, wishes=wishes, closed=closed)


@pytest.mark.spec("EN-23")
def test_dependencies_go_first_then_priority_then_the_written_order() -> None:
    written = [issue("a", "c"), issue("b"), issue("c"), issue("d", priority=9)]
    assert [found.id for found in order_issues(written)] == ["d", "c", "a", "b"]


@pytest.mark.spec("EN-23")
@given(
    st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3)), unique_by=lambda i: i[0])
)
def test_any_dependencies_cycles_too_lose_and_double_no_issue(graph: list[tuple[int, list[int]]]) -> None:
    issues = [issue(f"i{number}", *(f"i{other}" for other in others)) for number, others in graph]
    assert sorted(found.id for found in order_issues(issues)) == sorted(found.id for found in issues)


@pytest.mark.spec("EN-13")
@pytest.mark.parametrize(
    ("state", "skipped"), [("open", False), ("landed", True), ("merged", True), ("closed", False)]
)
def test_an_issue_whose_own_pull_request_has_landed_is_left_out(state: str, skipped: bool) -> None:
    pull = PullRequest.model_validate(
        {"id": "a", "title": "A", "body": "", "branch": "x", "base": "main", "head": "a" * 40, "state": state}
    )
    assert bool(skip_reason(issue("a"), [pull])) is skipped
    assert skip_reason(issue("b"), [pull]) == ""
    assert skip_reason(issue("b", closed=True), []) == "closed"


def test_a_triage_with_questions_and_nothing_to_check_asks() -> None:
    assert after_triage(TriageReport(decision="build", acceptance=("x",))) == "build"
    assert after_triage(TriageReport(decision="build", questions=("which?",))) == "ask"
    assert after_triage(TriageReport(decision="reject")) == "reject"


def test_reproduced_findings_block_an_approval_and_unreproduced_ones_do_not() -> None:
    claim = ReviewFinding(severity="blocker", claim="it leaks")
    approval = ReviewReport(verdict="approve", findings=(claim,))
    reproduced = [Finding(code="reproduced", message="it leaks", fatal=True)]
    assert blocking(approval, []) == []
    assert blocking(approval, reproduced) == ["it leaks"]
    assert blocking(ReviewReport(verdict="request_changes", findings=(claim,)), []) == ["it leaks"]
    assert blocking(ReviewReport(verdict="request_changes"), []) != []


@pytest.mark.spec("EN-20")
@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ("", "no"),
        ("ab", "no"),
        ("aab", "no"),
        ("aba", "tell"),
        ("abaa", "tell"),
        ("abab", "stop"),
        ("abcabc", "stop"),
    ],
)
def test_a_loop_is_a_return_to_a_tree_that_was_left(seen: str, verdict: str) -> None:
    assert loop_detected(list(seen)) == verdict
