"""The life of an issue: every state, every reason, every way out, as one table."""

from typing import Literal, NamedTuple, get_args

State = Literal[
    "queued",
    "claimed",
    "triaging",
    "working",
    "verifying",
    "reviewing",
    "proposed",
    "integrating",
    "landed",
    "merged",
    "asked",
    "rejected",
    "skipped",
    "parked",
    "evicted",
    "lost_claim",
    "failed",
]
ParkReason = Literal["over_budget", "looping", "stalled", "attempts", "provider", "needs_input"]
EvictReason = Literal["conflict", "culprit"]

STATES: tuple[State, ...] = get_args(State)

TRANSITIONS: dict[State, frozenset[State]] = {
    # An issue that rested in an earlier run keeps its rest until a person acts: hence the four rests here.
    "queued": frozenset(
        {"claimed", "lost_claim", "skipped", "failed", "proposed", "asked", "rejected", "parked", "evicted"}
    ),
    "claimed": frozenset({"triaging", "working", "lost_claim", "skipped", "failed", "parked", "proposed"}),
    "triaging": frozenset({"working", "asked", "rejected", "parked", "lost_claim", "failed", "queued"}),
    "working": frozenset({"verifying", "parked", "lost_claim", "failed", "queued"}),
    "verifying": frozenset({"reviewing", "working", "parked", "lost_claim", "failed", "queued"}),
    "reviewing": frozenset({"proposed", "working", "verifying", "parked", "lost_claim", "failed", "queued"}),
    "proposed": frozenset(
        {"integrating", "merged", "parked", "lost_claim", "skipped", "evicted", "failed", "queued"}
    ),
    "integrating": frozenset({"landed", "evicted", "parked", "proposed", "lost_claim", "failed", "queued"}),
    "landed": frozenset({"merged", "evicted", "queued"}),
    "merged": frozenset(),
    "asked": frozenset({"queued", "rejected", "skipped"}),
    "rejected": frozenset({"queued"}),
    "skipped": frozenset({"queued"}),
    "parked": frozenset({"queued", "skipped"}),
    "evicted": frozenset({"queued", "skipped"}),
    "lost_claim": frozenset({"queued"}),
    "failed": frozenset({"queued"}),
}

RESTING: frozenset[State] = frozenset(
    {"landed", "merged", "asked", "rejected", "skipped", "parked", "evicted", "lost_claim", "failed"}
)
"""Where a run may leave an issue: nothing moves it but a person, or the next run."""

GOOD: frozenset[State] = frozenset({"landed", "merged", "asked", "rejected", "skipped", "lost_claim"})
"""Where a run may leave every issue and still exit 0. A claim lost is another factory's work."""


class WayOut(NamedTuple):
    """What a person can do about a resting state. Not a model: `status` must start without pydantic."""

    meaning: str
    command: str
    """A command that helps; `{issue}` is filled in."""


WAYS_OUT: dict[tuple[State, str], WayOut] = {
    ("landed", ""): WayOut(
        meaning="on the integration branch, suite green", command="ironworks pr merge integration"
    ),
    ("merged", ""): WayOut(meaning="on the base branch", command="ironworks show {issue}"),
    ("asked", ""): WayOut(
        meaning="too vague to build; questions are waiting", command="ironworks answer {issue} TEXT"
    ),
    ("rejected", ""): WayOut(meaning="triage advises against it", command="ironworks retry {issue}"),
    ("skipped", ""): WayOut(meaning="policy left it out", command="ironworks retry {issue}"),
    ("parked", "over_budget"): WayOut(
        meaning="its budget is spent", command="ironworks retry {issue} --budget-usd 6"
    ),
    ("parked", "looping"): WayOut(meaning="the worker went in circles", command="ironworks retry {issue}"),
    ("parked", "stalled"): WayOut(meaning="the agent went silent", command="ironworks retry {issue}"),
    ("parked", "attempts"): WayOut(meaning="every attempt is used up", command="ironworks retry {issue}"),
    ("parked", "provider"): WayOut(
        meaning="the model provider refused us", command="ironworks retry {issue}"
    ),
    ("parked", "needs_input"): WayOut(
        meaning="the worker has a question", command="ironworks answer {issue} TEXT"
    ),
    ("evicted", "conflict"): WayOut(
        meaning="it conflicts with what landed before", command="ironworks retry {issue}"
    ),
    ("evicted", "culprit"): WayOut(
        meaning="with it, the merged suite is red", command="ironworks retry {issue}"
    ),
    ("lost_claim", ""): WayOut(meaning="another factory works on it", command="ironworks status"),
    ("failed", ""): WayOut(meaning="the factory itself failed on it", command="ironworks retry {issue}"),
}


def may_become(old: State, new: State) -> bool:
    """Whether the table allows `old` → `new` (staying is always allowed)."""
    return old == new or new in TRANSITIONS[old]


def way_out(state: State, reason: str = "") -> WayOut | None:
    """The way out of a resting state; None while the factory still works on it."""
    return WAYS_OUT.get((state, reason)) or WAYS_OUT.get((state, ""))
