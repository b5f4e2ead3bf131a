"""What happened, in the past tense: the append-only record from which every status is derived."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ironworks.core.models import Issue, Model, Sha, Stage, Usage
from ironworks.core.states import EvictReason, ParkReason, State, may_become


class Event(Model):
    """Root of all events. `issue` is empty for what concerns the whole run."""

    kind: str
    run: str
    issue: str = ""

    @property
    def state(self) -> State | None:
        """The state an issue is in once this has happened; None if it changes none."""
        return None


class RunStarted(Event):
    kind: Literal["RunStarted"] = "RunStarted"
    repository: str
    base: str
    backlog: str = ""
    pid: int
    settings: dict[str, Any] = {}


class RunFinished(Event):
    kind: Literal["RunFinished"] = "RunFinished"
    exit_code: int
    stopped: bool = False


class BaseSnapshotMade(Event):
    kind: Literal["BaseSnapshotMade"] = "BaseSnapshotMade"
    commit: Sha
    snapshot: str
    duration_s: float
    prepare_s: float = 0.0
    """Of it, how long the project's own commands took."""
    reused: str = ""
    """The older snapshot whose checkout was brought up to date, with nothing installed anew."""


class BaselineTaken(Event):
    kind: Literal["BaselineTaken"] = "BaselineTaken"
    commit: Sha
    passed: int
    failing: tuple[str, ...]


class IssueQueued(Event):
    """Read, frozen and waiting; also the way back from a resting state."""

    kind: Literal["IssueQueued"] = "IssueQueued"
    snapshot: Issue
    generation: int = 1

    @property
    def state(self) -> State | None:
        return "queued"


class IssueClaimed(Event):
    kind: Literal["IssueClaimed"] = "IssueClaimed"
    epoch: int
    commit: Sha
    stolen: bool = False

    @property
    def state(self) -> State | None:
        return "claimed"


class ClaimLost(Event):
    kind: Literal["ClaimLost"] = "ClaimLost"
    owner: str = ""

    @property
    def state(self) -> State | None:
        return "lost_claim"


class StageStarted(Event):
    """`attempt` counts from 1 within the issue and stage."""

    kind: Literal["StageStarted"] = "StageStarted"
    stage: Stage
    attempt: int

    @property
    def state(self) -> State | None:
        states: dict[Stage, State] = {
            "triage": "triaging", "work": "working", "verify": "verifying", "review": "reviewing",
            "integrate": "integrating",
        }  # fmt: skip
        return states[self.stage]


class StageFinished(Event):
    """`outcome` in one word (done, passed, approve, failed, ...); `handoff` is what the next stage gets."""

    kind: Literal["StageFinished"] = "StageFinished"
    stage: Stage
    attempt: int
    outcome: str
    duration_s: float
    agent_s: float = 0.0
    suite_s: float = 0.0
    cpu_s: float = 0.0
    cost_usd: float = 0.0
    handoff: dict[str, Any] = {}


class WorkCaptured(Event):
    """The worker's tree is a commit in the depot. `ghost` says that the agent had not committed it."""

    kind: Literal["WorkCaptured"] = "WorkCaptured"
    attempt: int
    commit: Sha
    tree: Sha
    ghost: bool


class FindingTried(Event):
    """A reviewer's test was run on the commit it speaks of. `reproduced`: it fails there, as it must."""

    kind: Literal["FindingTried"] = "FindingTried"
    attempt: int
    reproduced: bool
    path: str = ""
    claim: str


Limit = Literal["pids", "memory", "disk", "output"]


class LimitReached(Event):
    """A sandbox wanted more than it may have, and did not get it."""

    kind: Literal["LimitReached"] = "LimitReached"
    stage: Stage
    limit: Limit
    detail: str


class PullRequestOpened(Event):
    kind: Literal["PullRequestOpened"] = "PullRequestOpened"
    branch: str
    commit: Sha

    @property
    def state(self) -> State | None:
        return "proposed"


class IssueLanded(Event):
    kind: Literal["IssueLanded"] = "IssueLanded"
    branch: str
    commit: Sha

    @property
    def state(self) -> State | None:
        return "landed"


class IssueMerged(Event):
    kind: Literal["IssueMerged"] = "IssueMerged"
    commit: Sha

    @property
    def state(self) -> State | None:
        return "merged"


class IssueAsked(Event):
    kind: Literal["IssueAsked"] = "IssueAsked"
    questions: tuple[str, ...]

    @property
    def state(self) -> State | None:
        return "asked"


class IssueRejected(Event):
    kind: Literal["IssueRejected"] = "IssueRejected"
    reason: str

    @property
    def state(self) -> State | None:
        return "rejected"


class IssueSkipped(Event):
    kind: Literal["IssueSkipped"] = "IssueSkipped"
    reason: str

    @property
    def state(self) -> State | None:
        return "skipped"


class IssueParked(Event):
    kind: Literal["IssueParked"] = "IssueParked"
    reason: ParkReason
    detail: str = ""

    @property
    def state(self) -> State | None:
        return "parked"


class IssueEvicted(Event):
    kind: Literal["IssueEvicted"] = "IssueEvicted"
    reason: EvictReason
    detail: str = ""

    @property
    def state(self) -> State | None:
        return "evicted"


class IssueFailed(Event):
    kind: Literal["IssueFailed"] = "IssueFailed"
    code: str
    detail: str

    @property
    def state(self) -> State | None:
        return "failed"


class AnswerGiven(Event):
    """A person answered; the text goes to the worker as trusted guidance."""

    kind: Literal["AnswerGiven"] = "AnswerGiven"
    text: str


class IssuePaused(Event):
    kind: Literal["IssuePaused"] = "IssuePaused"


class IssueResumed(Event):
    kind: Literal["IssueResumed"] = "IssueResumed"


class BudgetRaised(Event):
    kind: Literal["BudgetRaised"] = "BudgetRaised"
    budget_usd: float


class UsageRecorded(Event):
    """A settled model exchange, as the ledger has it."""

    kind: Literal["UsageRecorded"] = "UsageRecorded"
    attempt_key: str
    usage: Usage


class EgressDenied(Event):
    """Something in a sandbox asked for a way out that policy does not give."""

    kind: Literal["EgressDenied"] = "EgressDenied"
    target: str
    reason: str


AnyEvent = Annotated[
    RunStarted
    | RunFinished
    | BaseSnapshotMade
    | BaselineTaken
    | IssueQueued
    | IssueClaimed
    | ClaimLost
    | StageStarted
    | StageFinished
    | WorkCaptured
    | FindingTried
    | LimitReached
    | PullRequestOpened
    | IssueLanded
    | IssueMerged
    | IssueAsked
    | IssueRejected
    | IssueSkipped
    | IssueParked
    | IssueEvicted
    | IssueFailed
    | AnswerGiven
    | IssuePaused
    | IssueResumed
    | BudgetRaised
    | UsageRecorded
    | EgressDenied,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


class Recorded(Model):
    """An event as the log holds it. `seq` grows by commit order; `key` makes a repeat harmless."""

    seq: int
    at: datetime
    key: str
    event: AnyEvent


def state_of(events: list[Recorded]) -> tuple[State, str]:
    """The state and reason of one issue, folded from its events in order.

    An event that the table forbids leaves the state as it was: the record is kept, the status stays legal.
    """
    state: State = "queued"
    reason = ""
    for recorded in events:
        new = recorded.event.state
        if new is None or not may_become(state, new):
            continue
        state = new
        reason = (
            getattr(recorded.event, "reason", "")
            if new in {"parked", "evicted", "rejected", "skipped"}
            else ""
        )
    return state, reason
