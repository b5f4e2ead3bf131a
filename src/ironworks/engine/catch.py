"""What the factory caught: each event that shows something which would have gone wrong unnoticed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ironworks.core import events as ev
from ironworks.core.models import Stage
from ironworks.core.report import Catch, Catcher

Noticed = tuple[Catcher, str, str]
"""Who, code, and what in words."""
MAX_WHAT = 300
NOT_REPRODUCED = ("objection", "not reproduced: its test does not fail as it must")
PARKED: dict[str, tuple[Catcher, str]] = {
    "over_budget": ("budget", "stopped at its cap, the work kept"),
    "looping": ("watchdog", "stopped: it went in circles"),
    "stalled": ("watchdog", "stopped: no end and no sign of life"),
    "attempts": ("verifier", "not proved in any attempt, so it does not land"),
}


def caught(events: Iterable[ev.Event]) -> tuple[Catch, ...]:
    """The catches of a log, each once, in the order in which they were made."""
    return tuple(dict.fromkeys(catch for event in events for catch in catches(event)))


def catches(event: ev.Event) -> list[Catch]:
    """What one event shows to have been caught; mostly nothing."""
    return [
        Catch(by=by, code=code, issue=event.issue, what=_line(what)) for by, code, what in _noticed(event)
    ]


def _noticed(event: ev.Event) -> Iterator[Noticed]:
    if isinstance(event, ev.StageFinished):
        yield from _IN_STAGE.get(event.stage, _nothing)(event.handoff)
    elif isinstance(event, ev.WorkCaptured) and event.ghost:
        yield "capture", "ghost-commit", "the worker left work uncommitted: captured, nothing lost"
    elif isinstance(event, ev.FindingTried):
        code, said = ("reproduced", "reproduced: its test fails") if event.reproduced else NOT_REPRODUCED
        yield "reviewer", code, f"{event.claim} ({said})"
    elif isinstance(event, ev.LimitReached):
        yield "sandbox", f"limit-{event.limit}", event.detail
    elif isinstance(event, ev.EgressDenied):
        yield "gateway", "egress-denied", f"no way out to {event.target}: {event.reason}"
    elif isinstance(event, ev.ClaimLost):
        yield "claims", "claimed-elsewhere", "another factory has the claim: not worked on twice"
    else:
        yield from _at_rest(event)


def _at_rest(event: ev.Event) -> Iterator[Noticed]:
    if isinstance(event, ev.IssueAsked):
        yield "triage", "asked", f"too vague to build; asked instead: {' '.join(event.questions)}"
    elif isinstance(event, ev.IssueRejected):
        yield "triage", "rejected", event.reason
    elif isinstance(event, ev.IssueEvicted):
        yield "integrator", event.reason, f"kept out, the branch stays green: {event.detail}"
    elif isinstance(event, ev.IssueParked) and event.reason in PARKED:
        by, meaning = PARKED[event.reason]
        yield by, event.reason.replace("_", "-"), f"{meaning}: {event.detail}"


def _nothing(_: dict[str, Any]) -> Iterator[Noticed]:
    yield from ()


def _verified(handoff: dict[str, Any]) -> Iterator[Noticed]:
    for finding in _tables(handoff.get("findings")):
        if finding.get("fatal") or finding.get("code") == "claim-contradicted":
            yield "verifier", str(finding.get("code")), str(finding.get("message"))
    known = _known_failing(handoff)
    if handoff.get("verdict") == "passed" and known:
        tests = "1 test that fails" if known == 1 else f"{known} tests that fail"
        yield "baseline", "known-failing", f"{tests} on base already: held against nobody"


def _reviewed(handoff: dict[str, Any]) -> Iterator[Noticed]:
    for finding in _tables(handoff.get("findings")):
        if handoff.get("verdict") == "request_changes" and not finding.get("reproduction"):
            yield "reviewer", "objection", str(finding.get("claim"))


def _integrated(handoff: dict[str, Any]) -> Iterator[Noticed]:
    conflicts = handoff.get("conflicts")
    merged = {"structural": "declaration by declaration", "agent": "by an agent"}
    for merger, words in merged.items():
        files = conflicts.get(merger) if isinstance(conflicts, dict) else 0
        if files:
            count = "1 file" if files == 1 else f"{files} files"
            yield (
                "integrator",
                f"conflict-{merger}",
                f"{count} in conflict: merged {words}, proved, suite green",
            )


_IN_STAGE: dict[Stage, Callable[[dict[str, Any]], Iterator[Noticed]]] = {
    "verify": _verified,
    "review": _reviewed,
    "integrate": _integrated,
}


def _known_failing(verification: dict[str, Any]) -> int:
    """How many tests failed here that fail on base too."""
    baseline = verification.get("baseline")
    tests = verification.get("tests")
    if not isinstance(baseline, dict) or not isinstance(tests, dict):
        return 0
    failing = baseline.get("failing")
    names = [name for name in failing if isinstance(name, str)] if isinstance(failing, list | tuple) else []
    return sum(tests.get(name) in ("failed", "error") for name in names)


def _tables(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _line(text: str) -> str:
    """One bounded line, whatever a stranger wrote."""
    # A terminal would obey control and direction characters.
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= MAX_WHAT else line[: MAX_WHAT - 1] + "…"
