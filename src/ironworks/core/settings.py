"""`ironworks.toml` as frozen data. Reading, trusting and merging it is `app`'s work."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ironworks.core.models import AgentStage, Model

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1000)]
Secret = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")]
"""Where a secret is, never the secret: `env:NAME` or `file:PATH`."""
Size = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*(K|M|G|T)?$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]

SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def in_bytes(size: Size | None) -> int | None:
    """`512M` → bytes."""
    if size is None:
        return None
    unit = SIZES.get(size[-1])
    return int(size[:-1]) * unit if unit else int(size)


class TestSettings(Model):
    """One suite. `command` is run by `sh -c` in `dir`; `{junit}` becomes the path of the report to write."""

    __test__ = False  # pytest would take the class for tests wherever it is imported

    name: Name = "tests"
    dir: str = "."
    command: str
    timeout_s: Positive = 600
    env: dict[str, str] = {}


class ProjectSettings(Model):
    """What is built and how it is proved. Taken from the base commit."""

    base: str = ""
    """Branch that changes are for; empty = the one checked out."""
    prepare: tuple[str, ...] = ()
    """Shell commands run once, in the base snapshot, with the registries the presets allow."""
    test: tuple[TestSettings, ...] = ()
    hidden_tests: str = ""
    """A folder outside the repository whose suite only grades. Empty = none."""
    hidden_command: str = ""
    """Runs it; `{hidden}` is its folder there. Empty = the first test command with the folder after it."""
    scope: tuple[str, ...] = ()
    """Globs no change may leave; empty = the whole tree."""
    protected: tuple[str, ...] = ()
    """More globs, beside the built-in ones, whose change must be pointed out to the reviewer."""


class AgentSettings(Model):
    """Which agent works, and with what. `[agent.review]` and its like override single stages."""

    use: str = "builtin"
    model: str = ""
    """`provider/model`, or a model of the only provider."""
    effort: Literal["", "low", "medium", "high"] = ""
    timeout_s: Positive = 3600
    """Wall time of one attempt."""
    silence_s: Positive = 900
    """No output, no model traffic and no CPU for this long = stalled."""
    command: tuple[str, ...] = ()
    """argv of the `command` agent, run in the repository root inside the sandbox."""
    dir: str = ""
    """A host folder mounted read-only at `/agent`."""
    context: tuple[str, ...] = ()
    """Files of the repository put into every prompt."""


class Price(Model):
    """US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cache_read: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None


class ProviderSettings(Model):
    """Where models live. The key stays on the host."""

    kind: Literal["anthropic", "openai", "gemini"] = "anthropic"
    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$")]
    key: Secret | None = None
    prices: dict[str, Price] = {}
    """By model name, before the built-in list; `*` = every other model."""


class BudgetSettings(Model):
    """Caps in US dollars; spending stops before a cap is passed."""

    issue_usd: Positive = 3.0
    run_usd: Positive | None = None
    day_usd: Positive | None = None


class LimitSettings(Model):
    parallel: Count = 5
    max_rounds: Count = 3
    """Work → verify → review rounds before an issue is parked."""
    attempts: Count = 2
    """Tries of one stage whose agent failed (crashed, hung, gave no valid handoff)."""
    max_open_pull_requests: Count = 50
    lease_s: Annotated[float, Field(ge=3, le=3600)] = 90
    """How long a claim outlives a factory that has died; renewed three times in its life."""


class ServiceSettings(Model):
    """A program beside the tests, in their sandbox; `command` is run by `sh -c` in the checkout."""

    command: Annotated[str, StringConstraints(min_length=1)]
    ready: Annotated[int, Field(ge=1, le=65535)] | Annotated[str, StringConstraints(min_length=1)]
    """A port on the sandbox's own loopback that must answer, or a command that must succeed."""
    timeout_s: Positive = 60
    env: dict[str, str] = {}


class SandboxSettings(Model):
    backend: Literal["local", "docker", "upstash"] = "local"
    image: str = ""
    """What a backend of images boots; it must be there already."""
    runtime: str = ""
    cpus: Positive | None = None
    memory: Size | None = None
    pids: Annotated[int, Field(ge=16)] | None = None
    disk: Size | None = None
    transparent: bool = False
    """Whether programs that ignore proxy variables come to the gateway too, at ports 80 and 443."""
    services: dict[Name, ServiceSettings] = {}


class NetworkSettings(Model):
    """What the gateway lets out, beside the providers."""

    allow: tuple[str, ...] = ()
    """Host names, `*.` names, `host:port`, or presets (`pip`, `npm`, `uv`, `cargo`, `apt`)."""
    prepare: tuple[str, ...] = ()
    """More of the same, while the base snapshot is prepared and never for an agent."""
    headers: dict[str, dict[str, Secret]] = {}
    """Host → header → where its value is. Attached on the way out."""


class CleanupSettings(Model):
    when: Literal["always", "success", "never"] = "always"
    """Which sandbox disks are removed once an issue rests."""


class BranchSettings(Model):
    template: Annotated[str, StringConstraints(pattern=r"^[^{}\s]*\{issue\}[^{}\s]*$")] = "ironworks/{issue}"


class Settings(Model):
    """The whole file, frozen for a run."""

    project: ProjectSettings = ProjectSettings()
    agent: AgentSettings = AgentSettings()
    stages: dict[AgentStage, AgentSettings] = {}
    """`agent` with the stage's own overrides applied; a stage that has none is absent."""
    providers: dict[Name, ProviderSettings] = {}
    budget: BudgetSettings = BudgetSettings()
    limits: LimitSettings = LimitSettings()
    sandbox: SandboxSettings = SandboxSettings()
    network: NetworkSettings = NetworkSettings()
    cleanup: CleanupSettings = CleanupSettings()
    branch: BranchSettings = BranchSettings()

    def agent_for(self, stage: AgentStage) -> AgentSettings:
        return self.stages.get(stage, self.agent)

    @model_validator(mode="after")
    def _suites_have_distinct_names(self) -> Self:
        names = [suite.name for suite in self.project.test]
        if len(names) != len(set(names)):
            raise ValueError("each [[project.test]] table needs a name of its own")
        return self


HOST_SECTIONS: tuple[str, ...] = (
    "agent",
    "providers",
    "budget",
    "limits",
    "sandbox",
    "network",
    "cleanup",
    "branch",
)
"""Sections that run on the host, spend money or loosen a limit: only an operator's copy counts."""
