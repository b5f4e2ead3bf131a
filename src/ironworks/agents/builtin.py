"""The agent that ships with the factory: a compact tool loop, driven from here, run inside the sandbox."""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ironworks.agents.exchange import Alive, never, run_program
from ironworks.agents.model import model_of
from ironworks.core.handoffs import ANSWERS
from ironworks.core.models import AgentStage
from ironworks.core.ports import AgentAnswer, AgentTask, Mount, Sandbox, Transcript

MAX_TURNS = 200
MAX_TOKENS = 16_000
EVENTS: Mapping[str, tuple[str, ...]] = {
    "message": ("text",),
    "tool_call": ("name", "input"),
    "tool_result": ("name", "ok", "text"),
    "usage": (
        "model",
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    ),
    "retry": ("reason", "delay_s"),
    "error": ("message",),
    "progress": (),
}
START = "from loop.run import main\n\nmain()\n"


class BuiltinAgent:
    """Speaks the Anthropic Messages API. A session's conversation lives on the sandbox's disk."""

    name = "builtin"
    mounts: tuple[Mount, ...] = ()

    def __init__(self, alive: Alive = never, *, max_turns: int = MAX_TURNS) -> None:
        self._alive = alive
        self._max_turns = max_turns

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        """`task.session` is continued if the sandbox has it, else begun under that name."""
        session = re.sub(r"[^A-Za-z0-9_-]", "-", task.session or f"{task.stage}-{task.issue.id}")[:100]
        order = {
            **model_of(task, "the builtin agent"),
            "effort": task.settings.effort,
            "max_tokens": MAX_TOKENS,
            "max_turns": self._max_turns,
            "session": session,
            "resume": task.session is not None,
            "tools": _tools(task.stage),
            "schema": ANSWERS[task.stage].model_json_schema(),
        }
        return await run_program(
            sandbox,
            task,
            transcript,
            ["python3", "-I"],
            alive=self._alive,
            files={"loop.pyz": loop_archive(), "task.json": json.dumps(order).encode()},
            on_line=lambda line: _report(line, transcript),
            session=session,
        )


def _tools(stage: AgentStage) -> list[str]:
    common = ["bash", "read", "write", "edit"]
    return [*common, "check", "ask"] if stage == "work" else common


@cache
def loop_archive() -> bytes:
    """`agents/loop` as one file that any Python 3.9 or newer runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", START)
        for file in resources.files("ironworks.agents.loop").iterdir():
            if file.name.endswith(".py"):
                archive.writestr(f"loop/{file.name}", file.read_bytes())
    return packed.getvalue()


def _report(line: bytes, transcript: Transcript) -> None:
    """Passes an event of the loop on. The line comes from a sandbox: anything else in it is ignored."""
    try:
        event: Any = json.loads(line)
    except (ValueError, RecursionError):
        return
    kind = event.get("type") if isinstance(event, dict) else None
    if isinstance(kind, str) and kind in EVENTS:
        data = {key: event[key] for key in EVENTS[kind] if isinstance(event.get(key), str | int | float)}
        transcript.event(kind, **data)
