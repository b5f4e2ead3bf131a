"""The six handoffs: the only things, besides commits, that pass from one stage to the next."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ironworks.core.models import AgentStage, Finding, IssueId, IssueKind, Model, Sha, TestOutcome

Text = Annotated[str, Field(max_length=20_000)]
Line = Annotated[str, Field(max_length=2_000)]
Lines = Annotated[tuple[Line, ...], Field(max_length=200)]


class TriageReport(Model):
    """Whether an issue can be built, and what done means."""

    decision: Literal["build", "ask", "reject"]
    kind: IssueKind = "feature"
    acceptance: Lines = ()
    questions: Lines = ()
    scope: Lines = ()
    """Globs of the paths the change may touch; empty = anywhere."""
    depends_on: Lines = ()
    reason: Text = ""


class WorkReport(Model):
    """What a worker says it did. Compared with git, never trusted."""

    status: Literal["done", "blocked", "needs_input"]
    summary: Text
    files_changed: Lines = ()
    tests_added: Lines = ()
    tests_pass: bool | None = None
    notes: Text = ""


class Baseline(Model):
    """What was already failing on the base commit, before anybody worked."""

    commit: Sha
    passed: int
    failing: tuple[str, ...]
    """Ids of tests that fail or error there."""


class FailToPass(Model):
    """The proof that the change does something: tests that fail on base's sources and pass here."""

    proven: tuple[str, ...] = ()
    waived: str = ""
    """Why none is asked for: the issue's kind, or empty."""


class Verification(Model):
    """The verdict of the separate sandbox. Anything unparsable or unrunnable is `unverifiable`."""

    verdict: Literal["passed", "failed", "unverifiable"]
    commit: Sha
    """The commit that was judged: the work merged onto the tip named in `onto`."""
    onto: Sha
    tests: dict[str, TestOutcome] = {}
    baseline: Baseline | None = None
    regressions: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    fail_to_pass: FailToPass = FailToPass()
    findings: tuple[Finding, ...] = ()
    suite_runs: int = 0
    suite_s: float = 0.0
    """Seconds that suites ran, those side by side counted each."""
    cpu_s: float = 0.0
    duration_s: float = 0.0


class Reproduction(Model):
    """A test file that shows a finding: it must fail on the reviewed commit."""

    path: Line
    content: Annotated[str, Field(max_length=100_000)]


class ReviewFinding(Model):
    """One claim of a reviewer; it blocks only when its reproduction really fails."""

    severity: Literal["blocker", "major", "minor", "note"]
    path: Line = ""
    line: int | None = None
    claim: Text
    reproduction: Reproduction | None = None


class ReviewReport(Model):
    """A second agent's judgement of the diff."""

    verdict: Literal["approve", "request_changes"]
    findings: Annotated[tuple[ReviewFinding, ...], Field(max_length=100)] = ()
    checked: Lines = ()


class Resolution(Model):
    """An agent's answer to one conflict: the whole text of that one file, merged."""

    path: Line
    content: Annotated[str, Field(max_length=2_000_000)]
    explanation: Text = ""


class Landing(Model):
    """One pull request that is on the integration branch."""

    issue: IssueId
    commit: Sha


class Eviction(Model):
    """One pull request that is not, and why."""

    issue: IssueId
    reason: Literal["conflict", "culprit"]
    detail: Text = ""


class Conflicts(Model):
    """Files both sides touched, by who merged them."""

    git: int = 0
    structural: int = 0
    agent: int = 0


class Integration(Model):
    """What the integrator did to the integration branch in one sitting."""

    branch: str
    commit: Sha
    merged: tuple[Landing, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    conflicts: Conflicts = Conflicts()
    suite_runs: int = 0


HANDOFFS: dict[str, type[Model]] = {
    "TriageReport": TriageReport,
    "WorkReport": WorkReport,
    "Verification": Verification,
    "ReviewReport": ReviewReport,
    "Resolution": Resolution,
    "Integration": Integration,
}

ANSWERS: dict[AgentStage, type[Model]] = {
    "triage": TriageReport,
    "work": WorkReport,
    "review": ReviewReport,
    "resolve": Resolution,
}
"""What an agent must hand off at each of its stages."""


def schema(name: str) -> dict[str, Any]:
    """The published JSON Schema of handoff `name` (2020-12)."""
    document = HANDOFFS[name].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
