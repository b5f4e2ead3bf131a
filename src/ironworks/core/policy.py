"""Decisions as pure functions: what may start, what comes next, what is in scope."""

from collections.abc import Iterable, Sequence
from typing import Literal

from ironworks.core.handoffs import ReviewReport, TriageReport, Verification
from ironworks.core.models import Finding, Issue, PullRequest

INTEGRATION_BRANCH = "ironworks/integration"
INTEGRATION_PULL = "integration"

Next = Literal["propose", "rework", "park"]


def order_issues(issues: Sequence[Issue]) -> list[Issue]:
    """Dependencies first, then priority (high first), then the order they were written in.

    A cycle, or a dependency that is not in `issues`, constrains nothing.
    """
    by_id = {issue.id: issue for issue in issues}
    wanted = sorted(issues, key=lambda issue: -issue.wishes.priority)
    done: dict[str, Issue] = {}

    def visit(issue: Issue, path: frozenset[str]) -> None:
        if issue.id in done or issue.id in path:
            return
        for name in issue.wishes.depends_on:
            if name in by_id:
                visit(by_id[name], path | {issue.id})
        done.setdefault(issue.id, issue)

    for issue in wanted:
        visit(issue, frozenset())
    return list(done.values())


def skip_reason(issue: Issue, pulls: Iterable[PullRequest]) -> str:
    """Why intake leaves an issue out; empty = it is work.

    A pull request that is still open is no reason: whoever proposed it has not brought it to an end.
    """
    if issue.closed:
        return "closed"
    mine = [pull for pull in pulls if pull.kind == "issue" and pull.id == issue.id]
    if any(pull.state in {"landed", "merged"} for pull in mine):
        return f"pull request already {mine[0].state}"
    if issue.wishes.runtime:
        return f"it wants the runtime {issue.wishes.runtime!r}, which local sandboxes do not have"
    return ""


def may_propose(open_pulls: int, limit: int) -> bool:
    """Whether one more pull request may be opened."""
    return open_pulls < limit


def after_triage(report: TriageReport) -> Literal["build", "ask", "reject"]:
    """A triage that would build but names nothing to check asks instead."""
    if report.decision == "build" and not report.acceptance:
        return "ask" if report.questions else "build"
    return report.decision


def blocking(review: ReviewReport, reproduced: Sequence[Finding]) -> list[str]:
    """What must be reworked: reproduced findings, and whatever a refusing reviewer calls major or worse."""
    wanted = [f"{finding.message}\n{finding.detail}".strip() for finding in reproduced if finding.fatal]
    if review.verdict == "request_changes":
        named = [finding.claim for finding in review.findings if finding.severity in {"blocker", "major"}]
        wanted += (
            named
            or [finding.claim for finding in review.findings]
            or ["the reviewer asked for changes without naming any"]
        )
    return list(dict.fromkeys(wanted))


def after_verification(verification: Verification, rounds: int, max_rounds: int) -> Next:
    """What follows a verdict: only `passed` goes on; the rest is reworked while rounds are left."""
    if verification.verdict == "passed":
        return "propose"
    return "rework" if rounds < max_rounds else "park"


def loop_detected(fingerprints: Sequence[str]) -> Literal["no", "tell", "stop"]:
    """Whether a worker is back at a (tree, failures) it already had: first tell it, then stop it."""
    if not fingerprints:
        return "no"
    returns = 0
    seen: set[str] = set()
    previous = ""
    for fingerprint in fingerprints:
        if fingerprint in seen and fingerprint != previous:
            returns += 1
        seen.add(fingerprint)
        previous = fingerprint
    if returns == 0:
        return "no"
    return "tell" if returns == 1 else "stop"


def branch_name(template: str, issue: str) -> str:
    """The branch an issue's work is pushed to."""
    return template.replace("{issue}", issue)
