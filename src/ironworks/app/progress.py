"""What the event log says now, folded from plain data without pydantic: the source of every status shown.

It must agree with `core.events.state_of`; a test holds the two together.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ironworks.core.states import State, may_become, way_out

STATE_AFTER: dict[str, State] = {
    "IssueQueued": "queued",
    "IssueClaimed": "claimed",
    "ClaimLost": "lost_claim",
    "PullRequestOpened": "proposed",
    "IssueLanded": "landed",
    "IssueMerged": "merged",
    "IssueAsked": "asked",
    "IssueRejected": "rejected",
    "IssueSkipped": "skipped",
    "IssueParked": "parked",
    "IssueEvicted": "evicted",
    "IssueFailed": "failed",
}
STAGE_STATES: dict[str, State] = {
    "triage": "triaging",
    "work": "working",
    "verify": "verifying",
    "review": "reviewing",
    "integrate": "integrating",
}
WITH_REASON = frozenset({"parked", "evicted", "rejected", "skipped"})


@dataclass
class IssueProgress:
    """One issue as a person sees it. Times in seconds since 1970."""

    id: str
    title: str = ""
    state: State = "queued"
    reason: str = ""
    detail: str = ""
    stage: str = ""
    attempt: int = 0
    since_s: float = 0.0
    cost_usd: float = 0.0
    rounds: int = 0
    branch: str = ""
    questions: tuple[str, ...] = ()
    paused: bool = False

    def as_dict(self) -> dict[str, Any]:
        way = way_out(self.state, self.reason)
        return {
            "id": self.id,
            "title": self.title,
            "state": self.state,
            "reason": self.reason,
            "detail": self.detail,
            "stage": self.stage,
            "attempt": self.attempt,
            "since_s": self.since_s,
            "cost_usd": round(self.cost_usd, 6),
            "rounds": self.rounds,
            "branch": self.branch,
            "questions": list(self.questions),
            "paused": self.paused,
            "meaning": way.meaning if way else "",
            "way_out": way.command.format(issue=self.id) if way else "",
        }


@dataclass
class RunProgress:
    """A run and its issues, in the order they were queued."""

    run: str = ""
    pid: int = 0
    backlog: str = ""
    base: str = ""
    started_s: float = 0.0
    finished_s: float | None = None
    exit_code: int | None = None
    stopped: bool = False
    paused: bool = False
    last_s: float = 0.0
    note: str = ""
    issues: dict[str, IssueProgress] = field(default_factory=dict)

    @property
    def cost_usd(self) -> float:
        return sum(issue.cost_usd for issue in self.issues.values())

    def apply(self, at_s: float, event: dict[str, Any]) -> None:
        """Take in one more event of this run."""
        self.last_s = at_s
        kind, name = str(event.get("kind")), str(event.get("issue") or "")
        if name:
            issue = self.issues.setdefault(name, IssueProgress(name, since_s=at_s))
            _note(issue, kind, event)
            _move(issue, at_s, kind, event)
        else:
            self._note(at_s, kind, event)

    def _note(self, at_s: float, kind: str, event: dict[str, Any]) -> None:
        if kind == "RunStarted":
            self.run, self.pid, self.base = event["run"], event["pid"], event["base"]
            self.backlog = event.get("backlog", "")
            self.started_s = self.started_s or at_s
            self.finished_s = self.exit_code = None
            self.note = "making the base snapshot"
        elif kind == "RunFinished":
            self.finished_s, self.exit_code = at_s, event["exit_code"]
            self.stopped = event.get("stopped", False)
        elif kind in {"IssuePaused", "IssueResumed"}:
            self.paused = kind == "IssuePaused"
        elif kind == "BaseSnapshotMade":
            self.note = "base snapshot brought up to date" if event.get("reused") else "base snapshot made"
        elif kind == "BaselineTaken":
            self.note = f"baseline: {event['passed']} pass, {len(event['failing'])} fail"


def progress(rows: Iterable[tuple[int, float, dict[str, Any]]]) -> RunProgress:
    """The events of one run, folded."""
    run = RunProgress()
    for _, at_s, event in rows:
        run.apply(at_s, event)
    return run


def _move(issue: IssueProgress, at_s: float, kind: str, event: dict[str, Any]) -> None:
    new = STAGE_STATES.get(event.get("stage", "")) if kind == "StageStarted" else STATE_AFTER.get(kind)
    if new is None or not may_become(issue.state, new):
        return
    issue.state = new
    issue.since_s = at_s
    issue.reason = str(event.get("reason", "")) if new in WITH_REASON else ""
    issue.detail = str(event.get("detail", "")) if new in {"parked", "evicted", "failed"} else ""


def _note(issue: IssueProgress, kind: str, event: dict[str, Any]) -> None:
    if kind == "IssueQueued":
        issue.title = event["snapshot"]["title"]
        issue.stage, issue.attempt = "", 0
    elif kind == "StageStarted":
        issue.stage, issue.attempt = event["stage"], event["attempt"]
        issue.rounds += event["stage"] == "verify"
    elif kind == "UsageRecorded":
        issue.cost_usd += event["usage"]["cost_usd"]
    elif kind in {"PullRequestOpened", "IssueLanded"}:
        issue.branch = event["branch"] if kind == "PullRequestOpened" else issue.branch
    elif kind == "IssueAsked":
        issue.questions = tuple(event["questions"])
    elif kind in {"IssuePaused", "IssueResumed"}:
        issue.paused = kind == "IssuePaused"
