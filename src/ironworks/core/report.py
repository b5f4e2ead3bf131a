"""The report of a run: the stable shape behind `ironworks run --json` and `show`."""

from typing import Any, Literal

from ironworks.core.handoffs import Conflicts, Eviction, Landing
from ironworks.core.models import Model, PullRequest, Sha, Stage, TestOutcome
from ironworks.core.states import State


class StageReport(Model):
    """One attempt of one stage; times in seconds, money in US dollars."""

    stage: Stage
    attempt: int
    outcome: str
    duration_s: float
    agent_s: float = 0.0
    suite_s: float = 0.0
    cost_usd: float = 0.0


class IssueReport(Model):
    id: str
    title: str
    state: State
    reason: str = ""
    detail: str = ""
    branch: str = ""
    rounds: int = 0
    cost_usd: float = 0.0
    stages: tuple[StageReport, ...] = ()
    evidence: dict[str, Any] = {}
    """The last verification and review, as handed off."""


class IntegrationReport(Model):
    branch: str = ""
    commit: str = ""
    merged: tuple[Landing, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    conflicts: Conflicts = Conflicts()
    suite_runs: int = 0


Catcher = Literal[
    "triage", "baseline", "capture", "verifier", "reviewer", "integrator", "gateway", "budget", "watchdog",
    "sandbox", "claims",
]  # fmt: skip
"""Which part of the factory noticed something."""


class Catch(Model):
    """What would have gone wrong unnoticed. `code` is stable, `what` one line for people."""

    by: Catcher
    code: str
    issue: str = ""
    what: str


class Grade(Model):
    """What a suite that no agent has seen says of one commit. It decides nothing."""

    commit: Sha
    passed: int = 0
    failed: int = 0
    """Failed or broken; what is neither was skipped."""
    total: int = 0
    tests: dict[str, TestOutcome] = {}
    problem: str = ""
    """Why the suite could not be used; nothing has passed then."""


class ClaimCounts(Model):
    won: int = 0
    lost: int = 0
    stolen: int = 0


class RunReport(Model):
    """What a run came to. `critical_path_s` is the least wall time possible for its own agent and suite
    durations given `parallel` and the cores; `serial_s` is what they take one after the other. Times in
    seconds, money in US dollars."""

    run: str
    issues: tuple[IssueReport, ...]
    pull_requests: tuple[PullRequest, ...] = ()
    integration: IntegrationReport = IntegrationReport()
    caught: tuple[Catch, ...] = ()
    cost_usd: float = 0.0
    costs: dict[Stage, float] = {}
    """By stage. Attempts that a crash cut short are only in the sum."""
    wall_s: float = 0.0
    critical_path_s: float = 0.0
    serial_s: float = 0.0
    agent_s: float = 0.0
    sandbox_cpu_s: float = 0.0
    claims: ClaimCounts = ClaimCounts()
    repository: str = ""
    state_dir: str = ""
    exit_code: int = 0
    stopped: bool = False
    next: str = ""
    """The one command to type next; it succeeds when typed."""
