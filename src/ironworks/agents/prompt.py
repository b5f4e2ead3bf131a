"""What an agent is told: templates in which what a stranger wrote is data in a fence it cannot close."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Field

from ironworks.core.handoffs import ANSWERS
from ironworks.core.models import AgentStage, Issue, Model

HEADER = re.compile(r"stage: (?P<stage>[a-z]+)\nissue: (?P<issue>[a-z0-9-]+)\nround: (?P<round>[0-9]+)\n")
"""How every prompt but a correction begins; a machine finds its place by it, at the start only."""
MAX_TEXT = 60_000
MAX_LINE = 500
MAX_LINES = 100


class PromptContext(Model):
    """What the templates may say. `answers`, `tests` and `scope` may be trusted, the rest is data."""

    issue: Issue
    round: Annotated[int, Field(ge=1)] = 1
    resumed: bool = False
    """The agent's session already holds the first prompt: only what is new is said."""
    acceptance: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    """Test commands."""
    known_failing: tuple[str, ...] = ()
    """Ids of tests that fail at base."""
    scope: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """What the last round found wrong."""
    ghost: str = ""
    """What work of an earlier attempt is already in the tree; empty = none."""
    answers: tuple[str, ...] = ()
    """What a person answered: guidance that may be trusted."""
    files: dict[str, str] = {}
    """Repository files the operator wants in every prompt."""
    siblings: dict[str, str] = {}
    """Of triage: the other issues' titles by id."""
    diff: str = ""
    verification: str = ""
    """Of review: the verdict and its evidence, for reading."""
    path: str = ""
    base: str = ""
    ours: str = ""
    theirs: str = ""
    other: Issue | None = None
    """Of resolve: the issue whose change is `ours`, already integrated; `issue` is the one of `theirs`."""
    reason: str = ""


def header(stage: str, issue: str, round: int) -> str:
    return f"stage: {stage}\nissue: {issue}\nround: {round}\n"


def render(stage: AgentStage, context: PromptContext) -> str:
    """The whole prompt of one exchange. No text in `context` is ever parsed as a template."""
    name = "rework" if stage == "work" and context.resumed else stage
    values = {field: getattr(context, field) for field in PromptContext.model_fields}
    text = _filled(name, **values, schema=_schema(stage))
    return header(stage, context.issue.id, context.round) + "\n" + text


def render_correction(errors: Sequence[str], *, original: str = "") -> str:
    """Asks for a valid handoff. `original`: the first prompt, for agents without sessions."""
    return f"{original}\n\n".lstrip("\n") + _filled("correction", errors=errors)


def fenced(text: str, label: str) -> str:
    """`text` as data between tags that it cannot contain; its middle is left out when it is very long."""
    shown = text
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        shown = f"{text[:half]}\n[... {len(text) - MAX_TEXT} characters left out ...]\n{text[-half:]}"
    # Nobody can write a text that contains its own hash.
    tag = f"{label}-{_digest(shown)}"
    return f"<{tag}>\n{shown}\n</{tag}>"


def bullets(values: Sequence[str]) -> str:
    """One line each, whatever they contain; at most MAX_LINES of them."""
    shown = [f"- {' '.join(value.split())[:MAX_LINE]}" for value in values[:MAX_LINES]]
    if len(values) > MAX_LINES:
        shown.append(f"- ... and {len(values) - MAX_LINES} more, all in the file that $IRONWORKS_INPUT names")
    return "\n".join(shown)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _schema(stage: AgentStage) -> str:
    return json.dumps(ANSWERS[stage].model_json_schema(), separators=(",", ":"))


@cache
def _environment() -> Environment:
    # Prompts are plain text: escaping for HTML would corrupt them.
    environment = Environment(
        loader=PackageLoader("ironworks.agents", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters.update(fenced=fenced, bullets=bullets)
    return environment


def _filled(name: str, **values: Any) -> str:
    return _environment().get_template(f"{name}.j2").render(values)
