"""Builds the report of a run from its events alone, so that it says the same after any crash.

`critical_path_s` is the time the project's own `prepare` commands took, for which all wait, and the greatest
of these lower bounds. An issue's *chain* is the sum of the agent and suite
seconds of all its attempts of triage, work, verify and review, which cannot overlap; `merging` is the sum of
those of the integration, which is one chain by itself:

- the longest chain, with the part of `merging` that names its issue;
- all chains / `parallel`, since no more of them run at once;
- the CPU seconds of all stages / cores, since a core does one thing at a time;
- the shortest chain + `merging`, since integration starts with a proposed issue.

`serial_s` is what a single worker on a single core would need: the preparation, all chains and all merging.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from pydantic import ValidationError

from ironworks.core import events as ev
from ironworks.core.events import Recorded, state_of
from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import Conflicts, Eviction, Integration, Landing
from ironworks.core.models import PullRequest, Stage
from ironworks.core.policy import INTEGRATION_BRANCH
from ironworks.core.report import ClaimCounts, IntegrationReport, IssueReport, RunReport, StageReport
from ironworks.core.states import GOOD
from ironworks.engine.advice import next_command
from ironworks.engine.catch import caught


class Events(Protocol):
    """The one thing a report needs of the store."""

    def events(self, *, run: str | None = None) -> list[Recorded]: ...


class Merged:
    """The logs of several factories that shared one backlog, as one."""

    def __init__(self, logs: Sequence[Sequence[Recorded]]) -> None:
        self._log = sorted((item for log in logs for item in log), key=lambda item: (item.at, item.seq))

    def events(self, *, run: str | None = None) -> list[Recorded]:
        """All of them; they belong together whatever their runs are called."""
        return self._log


def build_report(
    store: Events,
    run: str,
    *,
    pulls: Sequence[PullRequest] = (),
    state_dir: str = "",
    cores: int | None = None,
) -> RunReport:
    """The report of `run` as far as it has come.

    `pulls` are the forge's records, other runs' included; `cores` defaults to what this process may use.
    """
    log = store.events(run=run)
    by_issue = _by_issue(log)
    issues = tuple(_issue(name, mine) for name, mine in by_issue.items())
    starts = [item.event for item in log if isinstance(item.event, ev.RunStarted)]
    started = starts[0] if starts else None
    prepare_s = max(
        (item.event.prepare_s for item in log if isinstance(item.event, ev.BaseSnapshotMade)), default=0.0
    )
    finished = [item.event for item in log if isinstance(item.event, ev.RunFinished)]
    stopped = bool(finished) and finished[-1].stopped
    stages = [item.event for item in log if isinstance(item.event, ev.StageFinished)]
    return RunReport(
        run=run,
        issues=issues,
        pull_requests=tuple(pull for pull in pulls if _concerns(pull, run, by_issue)),
        integration=_integration(log),
        caught=caught(item.event for item in log),
        cost_usd=_dollars(log),
        costs=_costs(stages),
        wall_s=_wall_s(log),
        critical_path_s=prepare_s + _critical_path_s(stages, _parallel(starts), cores or _cores()),
        serial_s=prepare_s + sum(stage.agent_s + stage.suite_s for stage in stages),
        agent_s=sum(stage.agent_s for stage in stages),
        sandbox_cpu_s=sum(stage.cpu_s for stage in stages),
        claims=_claims(log),
        repository=started.repository if started else "",
        state_dir=state_dir,
        exit_code=_exit_code(issues, stopped),
        stopped=stopped,
        next=next_command(
            [(issue.id, issue.state, issue.reason) for issue in issues], started.backlog if started else ""
        ),
    )


def _by_issue(log: Iterable[Recorded]) -> dict[str, list[Recorded]]:
    """The events of each issue. Where factories shared a backlog, those of the one that worked on it last."""
    found: dict[str, list[Recorded]] = {}
    for item in log:
        if item.event.issue:
            found.setdefault(item.event.issue, []).append(item)
    return {issue: _winners(mine) for issue, mine in found.items()}


def _winners(log: list[Recorded]) -> list[Recorded]:
    claimed = [item.event.run for item in log if isinstance(item.event, ev.IssueClaimed)]
    return [item for item in log if item.event.run == claimed[-1]] if claimed else log


def _issue(name: str, log: list[Recorded]) -> IssueReport:
    state, reason = state_of(log)
    facts = [item.event for item in log]
    return IssueReport(
        id=name,
        title=next((fact.snapshot.title for fact in reversed(facts) if isinstance(fact, ev.IssueQueued)), ""),
        state=state,
        reason=reason,
        detail=_detail(facts, state),
        branch=next((fact.branch for fact in reversed(facts) if isinstance(fact, ev.PullRequestOpened)), ""),
        rounds=sum(isinstance(fact, ev.StageStarted) and fact.stage == "verify" for fact in facts),
        cost_usd=_dollars(log),
        stages=_stages(facts),
        evidence=_evidence(facts),
    )


def _detail(facts: Sequence[ev.Event], state: str) -> str:
    """What the event that led to `state` says about it."""
    for fact in reversed(facts):
        if fact.state == state:
            text = getattr(fact, "detail", "") or "; ".join(getattr(fact, "questions", ()))
            return str(text)
    return ""


def _stages(facts: Sequence[ev.Event]) -> tuple[StageReport, ...]:
    """In the order in which they began: a resolver ends before the integration that asked it."""
    begun: dict[tuple[str, int], int] = {}
    for number, fact in enumerate(facts):
        if isinstance(fact, ev.StageStarted | ev.StageFinished):
            begun.setdefault((fact.stage, fact.attempt), number)
    done = [fact for fact in facts if isinstance(fact, ev.StageFinished)]
    return tuple(_stage(fact) for fact in sorted(done, key=lambda fact: begun[fact.stage, fact.attempt]))


def _stage(fact: ev.StageFinished) -> StageReport:
    return StageReport(
        stage=fact.stage,
        attempt=fact.attempt,
        outcome=fact.outcome,
        duration_s=fact.duration_s,
        agent_s=fact.agent_s,
        suite_s=fact.suite_s,
        cost_usd=fact.cost_usd,
    )


def _evidence(facts: Sequence[ev.Event]) -> dict[str, Any]:
    """The last verification and review, and the commit that holds the work."""
    evidence: dict[str, Any] = {}
    for fact in facts:
        if isinstance(fact, ev.StageFinished) and fact.stage in {"verify", "review"} and fact.handoff:
            evidence["verification" if fact.stage == "verify" else "review"] = fact.handoff
        elif isinstance(fact, ev.WorkCaptured):
            evidence["work"] = {"commit": fact.commit, "tree": fact.tree, "ghost": fact.ghost}
    return evidence


def _integration(log: Sequence[Recorded]) -> IntegrationReport:
    """What landed and what did not, from the issues' own events; the rest from the integrator's handoffs."""
    sittings: dict[str, Integration] = {}
    merged: dict[str, Landing] = {}
    evicted: dict[str, Eviction] = {}
    branch = commit = ""
    for item in log:
        fact = item.event
        if isinstance(fact, ev.StageFinished) and fact.stage == "integrate" and fact.handoff:
            sitting = _sitting(fact.handoff)
            if sitting:
                sittings[sitting.to_json()] = sitting
                branch, commit = sitting.branch, sitting.commit
        elif isinstance(fact, ev.IssueLanded):
            merged[fact.issue] = Landing(issue=fact.issue, commit=fact.commit)
            evicted.pop(fact.issue, None)
            branch, commit = branch or INTEGRATION_BRANCH, fact.commit
        elif isinstance(fact, ev.IssueEvicted):
            evicted[fact.issue] = Eviction(
                issue=fact.issue, reason=fact.reason, detail=excerpt(fact.detail, 20_000)
            )
            merged.pop(fact.issue, None)
    return IntegrationReport(
        branch=branch,
        commit=commit,
        merged=tuple(merged.values()),
        evicted=tuple(evicted.values()),
        conflicts=Conflicts(
            git=sum(sitting.conflicts.git for sitting in sittings.values()),
            structural=sum(sitting.conflicts.structural for sitting in sittings.values()),
            agent=sum(sitting.conflicts.agent for sitting in sittings.values()),
        ),
        suite_runs=sum(sitting.suite_runs for sitting in sittings.values()),
    )


def _sitting(handoff: dict[str, Any]) -> Integration | None:
    try:
        return Integration.model_validate(handoff)
    except ValidationError:
        return None


def _dollars(log: Iterable[Recorded]) -> float:
    """Every metered exchange, those of attempts that a crash cut short included."""
    spent = sum(item.event.usage.cost_usd for item in log if isinstance(item.event, ev.UsageRecorded))
    return round(spent, 6)


def _costs(stages: Iterable[ev.StageFinished]) -> dict[Stage, float]:
    costs: dict[Stage, float] = {}
    for stage in stages:
        costs[stage.stage] = costs.get(stage.stage, 0.0) + stage.cost_usd
    return {stage: round(cost_usd, 6) for stage, cost_usd in costs.items() if cost_usd}


def _wall_s(log: Sequence[Recorded]) -> float:
    """Time in which the factory ran: from each start to the last event before the next start."""
    total, first, last = 0.0, None, None
    for item in log:
        if isinstance(item.event, ev.RunStarted):
            total += _between(first, last)
            first = item.at
        last = item.at
    return total + _between(first, last)


def _between(first: datetime | None, last: datetime | None) -> float:
    return (last - first).total_seconds() if first and last else 0.0


def _critical_path_s(stages: Sequence[ev.StageFinished], parallel: int, cores: int) -> float:
    """See the module's docstring."""
    chains: dict[str, float] = {}
    landing: dict[str, float] = {}
    for stage in stages:
        part = landing if stage.stage == "integrate" else chains
        part[stage.issue] = part.get(stage.issue, 0.0) + stage.agent_s + stage.suite_s
    chains.pop("", None)
    merging = sum(landing.values())
    return max(
        max((chain + landing.get(name, 0.0) for name, chain in chains.items()), default=0.0),
        sum(chains.values()) / parallel,
        sum(stage.cpu_s for stage in stages) / cores,
        min(chains.values(), default=0.0) + merging,
    )


def _parallel(starts: Sequence[ev.RunStarted]) -> int:
    """How many issues are worked on at once, over all runs; of one that was started again, the last word."""
    found = {}
    for start in starts:
        limits = start.settings.get("limits", {})
        parallel = limits.get("parallel", 1) if isinstance(limits, dict) else 1
        found[start.run] = parallel if isinstance(parallel, int) and parallel > 0 else 1
    return sum(found.values()) or 1


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _claims(log: Iterable[Recorded]) -> ClaimCounts:
    won = lost = stolen = 0
    for item in log:
        if isinstance(item.event, ev.IssueClaimed):
            won += 1
            stolen += item.event.stolen
        elif isinstance(item.event, ev.ClaimLost):
            lost += 1
    return ClaimCounts(won=won, lost=lost, stolen=stolen)


def _exit_code(issues: Sequence[IssueReport], stopped: bool) -> int:
    """0 when every issue rests well, 3 when the factory itself failed on one, else 1."""
    if stopped and not issues:
        return 1  # It was stopped before it had looked at any.
    if any(issue.state == "failed" for issue in issues):
        return 3
    return 0 if all(issue.state in GOOD for issue in issues) else 1


def _concerns(pull: PullRequest, run: str, issues: dict[str, list[Recorded]]) -> bool:
    return pull.run == run or pull.id in issues or any(name in issues for name in pull.closes)
