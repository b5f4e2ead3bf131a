"""What a scripted model does: scenes of steps, matched by stage, issue and round, as plain data."""

import fnmatch
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, ValidationError

from ironworks.core.errors import ConfigError
from ironworks.core.models import AgentStage, Model


class TokenCount(Model):
    """What a provider would report for one exchange, in tokens."""

    input_tokens: int = 100
    """Read fresh; the cached ones are counted beside it, as Anthropic does."""
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 50


class Fault(Model):
    """How an exchange goes wrong, the first `times` times it is asked for (None = always)."""

    kind: Literal["status", "cut", "slow", "hang", "malformed"]
    times: Annotated[int, Field(ge=1)] | None = None
    status: int = 529
    headers: dict[str, str] = {}
    """Sent with a `status`, such as `{"retry-after": "0"}` or `{"x-should-retry": "false"}`."""
    delay_s: Annotated[float, Field(ge=0, le=600)] = 0.05
    """Of `slow`: the pause before every streamed event."""


class BaseStep(Model):
    """`text` is said beside the action, after `pause_s`; `usage` replaces the script's."""

    text: str = ""
    usage: TokenCount | None = None
    fault: Fault | None = None
    pause_s: Annotated[float, Field(ge=0, le=600)] = 0.0


class BashStep(BaseStep):
    kind: Literal["bash"] = "bash"
    command: str


class ReadStep(BaseStep):
    kind: Literal["read"] = "read"
    path: str


class WriteStep(BaseStep):
    kind: Literal["write"] = "write"
    path: str
    content: str


class EditStep(BaseStep):
    kind: Literal["edit"] = "edit"
    path: str
    old: str
    new: str


class CheckStep(BaseStep):
    kind: Literal["check"] = "check"


class AskStep(BaseStep):
    kind: Literal["ask"] = "ask"
    question: str


class HandoffStep(BaseStep):
    kind: Literal["handoff"] = "handoff"
    value: Any
    """Any JSON: also one that does not validate."""


class SayStep(BaseStep):
    """Ends the turn with words alone."""

    kind: Literal["say"] = "say"


Step = Annotated[
    BashStep | ReadStep | WriteStep | EditStep | CheckStep | AskStep | HandoffStep | SayStep,
    Field(discriminator="kind"),
]


class Seen(Model):
    """What a request shows. `results`: of the tools called since our latest prompt, one for each step."""

    stage: str
    issue: str
    round: int
    prompt: str
    results: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        return len(self.results)


class Play(Protocol):
    """Decides what a scripted model does from what it is shown, and from nothing else."""

    usage: TokenCount
    """Of every step that names none."""

    def next(self, seen: Seen) -> Step | None:
        """The step to take; None when the play has no part for this request."""
        ...


class Scene(Model):
    """What the model does in `stage` of the issues that match a glob, in `round` (None = any)."""

    stage: AgentStage
    issue: str = "*"
    round: int | None = None
    steps: tuple[Step, ...]

    def matches(self, stage: str, issue: str, round: int) -> bool:
        fits = self.round is None or self.round == round
        return fits and stage == self.stage and fnmatch.fnmatchcase(issue, self.issue)


DEFAULT_SCENES: tuple[Scene, ...] = (
    Scene(
        stage="triage",
        steps=(
            HandoffStep(
                value={"decision": "build", "kind": "feature", "acceptance": ["it does what the issue says"]}
            ),
        ),
    ),
    Scene(stage="review", steps=(HandoffStep(value={"verdict": "approve", "checked": ["the diff"]}),)),
)
"""A triage that builds and a review that approves, for scripts that care about neither."""


class Script(Model):
    """Scenes in order of preference: the first that matches plays."""

    scenes: tuple[Scene, ...] = ()
    usage: TokenCount = TokenCount()

    def scene(self, stage: str, issue: str, round: int) -> Scene | None:
        return next((s for s in self.scenes + DEFAULT_SCENES if s.matches(stage, issue, round)), None)

    def next(self, seen: Seen) -> Step | None:
        """The scene's step; words alone once it is over."""
        scene = self.scene(seen.stage, seen.issue, seen.round)
        if scene is None:
            return None
        return scene.steps[seen.step] if seen.step < len(scene.steps) else SayStep()


def load_script(path: Path) -> Script:
    """The script in a JSON file; ConfigError says what is wrong with it."""
    try:
        return Script.model_validate(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        detail = error.errors()[0] if isinstance(error, ValidationError) else error
        raise ConfigError(
            f"{path} is not a usable script: {detail}", hint="see docs/reference/agents.md"
        ) from error
