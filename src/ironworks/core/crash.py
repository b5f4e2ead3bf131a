"""Named points at which a test may kill the process, to prove that nothing is lost there.

The production code calls `crash_point(name)`; it does nothing unless a hook is armed. Only
`ironworks.testing` arms it. Every name stands in `CRASH_POINTS`, once, and is called from one place.
"""

from collections.abc import Callable

CRASH_POINTS: tuple[str, ...] = (
    # claim: forge/claim.py
    "claim.before_push",
    "claim.after_push",
    "claim.before_renew",
    "claim.before_release",
    "claim.after_release",
    # depot: git/depot.py
    "depot.before_admit",
    "depot.after_fetch",
    "depot.after_admit",
    "depot.before_push",
    "depot.after_push",
    # pull requests: forge/local
    "pull.before_write",
    "pull.after_write",
    # store
    "store.before_event",
    "store.after_event",
    "store.before_settle",
    "store.after_settle",
    # sandbox/local
    "sandbox.before_create",
    "sandbox.after_create",
    "sandbox.before_snapshot",
    "sandbox.after_snapshot",
    "sandbox.before_destroy",
    "sandbox.after_destroy",
    # engine: the base snapshot and the baseline
    "base.before_prepare",
    "base.after_prepare",
    "base.after_baseline",
    # engine: one pair around each step of the pipeline
    "flow.before_claim",
    "flow.after_claim",
    "flow.before_triage",
    "flow.after_triage",
    "flow.before_work",
    "work.after_agent",
    "work.after_capture",
    "flow.after_work",
    "flow.before_verify",
    "flow.after_verify",
    "flow.before_review",
    "review.after_agent",
    "flow.after_review",
    "flow.before_propose",
    "propose.after_branch",
    "flow.after_propose",
    # engine: integration
    "flow.before_integrate",
    "integrate.before_lease",
    "integrate.after_lease",
    "integrate.after_merge",
    "integrate.after_suite",
    "integrate.before_ref",
    "integrate.after_ref",
    "integrate.after_pull",
    "flow.after_integrate",
    "run.before_report",
    "run.after_report",
    "run.after_freeze",
    "run.before_told",
)

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook(name)` at every crash point from now on; None disarms."""
    global _hook
    _hook = hook


def crash_point(name: str) -> None:
    """A place where a test may stop the process; nothing otherwise."""
    if _hook is not None:
        _hook(name)
