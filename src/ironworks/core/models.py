"""The nouns: issues, claims, pull requests, findings, usage. Frozen, closed, printable as JSON."""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Sha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
IssueId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,78}[a-z0-9])?$")]
IssueKind = Literal["bug", "feature", "refactor", "docs", "chore"]
Stage = Literal["triage", "work", "verify", "review", "integrate"]
AgentStage = Literal["triage", "work", "review", "resolve"]
TestOutcome = Literal["passed", "failed", "error", "skipped"]

WITHOUT_NEW_TESTS: frozenset[str] = frozenset({"refactor", "docs", "chore"})
"""Kinds of issue that need not bring a test which fails before the change."""


class Model(BaseModel):
    """Frozen and closed: an unknown key is an error, never silently dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, UTF-8 kept."""
        data = self.model_dump(mode="json")
        return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


class IssueWishes(Model):
    """What an entry's own front matter asks for; each overrides the project's setting."""

    agent: str | None = None
    model: str | None = None
    runtime: str | None = None
    budget_usd: Annotated[float, Field(gt=0)] | None = None
    scope: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    priority: int = 0
    kind: IssueKind | None = None


class Issue(Model):
    """A unit of wanted work, frozen when read. `body` is untrusted data, verbatim."""

    id: IssueId
    title: str
    body: str = ""
    comments: tuple[str, ...] = ()
    source: str = ""
    """Where a person finds it: `backlog.md:12`, or a URL."""
    wishes: IssueWishes = IssueWishes()
    closed: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 over everything a worker is told: a later edit is another snapshot."""
        return hashlib.sha256(self.to_json().encode("utf-8", "surrogatepass")).hexdigest()


class Claim(Model):
    """The exclusive, leased right to work on `subject` (an issue id, or `integrator`)."""

    subject: str
    owner: str
    run: str
    epoch: Annotated[int, Field(ge=1)]
    expires_at: datetime
    commit: Sha
    """The unique claim commit the ref points at: holding it is holding the claim."""


PullState = Literal["open", "landed", "merged", "closed", "evicted"]


class PullRequest(Model):
    """A proposed change. `kind` integration is the one that closes all its issues with one click."""

    id: str
    """The issue's id, or `integration`."""
    kind: Literal["issue", "integration"] = "issue"
    title: str
    body: str
    branch: str
    base: str
    head: Sha
    state: PullState = "open"
    closes: tuple[IssueId, ...] = ()
    depends_on: tuple[str, ...] = ()
    reason: str = ""
    url: str = ""
    run: str = ""


class Finding(Model):
    """One thing somebody noticed. `fatal` ends in a refusal, the rest is shown."""

    code: str
    """Stable kebab-case name: `regression`, `out-of-scope`, `weakened`, `reproduced`, ..."""
    message: str
    fatal: bool
    path: str = ""
    test: str = ""
    detail: str = ""


class Usage(Model):
    """One metered model exchange, in tokens and US dollars."""

    provider: str
    model: str
    input_tokens: int = 0
    """Everything read, cached tokens included."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    """True when the provider's own figures never arrived and the reservation was charged."""


class ExecResult(Model):
    """How a command in a sandbox ended. Output is bounded; `truncated` says that some was dropped."""

    exit_code: int | None
    """None when it was ended by the time-out; negative for a signal."""
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def text(self, limit: int = 4000) -> str:
        """The end of stdout and stderr as printable text, for people and prompts."""
        joined = self.stdout + (b"\n" if self.stdout and self.stderr else b"") + self.stderr
        return joined[-limit:].decode("utf-8", "replace")


def json_bytes(value: Any) -> bytes:
    """Canonical JSON of plain data."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
