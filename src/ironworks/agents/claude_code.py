"""Claude Code, headless: a pinned program, one session on the sandbox's disk, a typed answer."""

import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.agents.exchange import Alive, never, run_program
from ironworks.agents.model import model_of
from ironworks.agents.program import Build, Program, programs_folder
from ironworks.core.handoffs import ANSWERS
from ironworks.core.ports import AgentAnswer, AgentTask, Mount, Sandbox, Transcript

CLAUDE_CODE = Program(
    name="claude-code",
    version="2.1.332",
    builds={
        "x86_64": Build(
            "@anthropic-ai/claude-code-linux-x64",
            "a2df1f41bb00250992926420d0063f89b127cb81abdd284dbefb80c50ff1d026",
        ),
        "aarch64": Build(
            "@anthropic-ai/claude-code-linux-arm64",
            "50c305fcb8912851ce774429131d94ed6f84edbe3d8d0ed7a59dade5d893acc0",
        ),
    },
    member="package/claude",
    wheel="claude-agent-sdk==0.2.189",
    wheel_member="claude_agent_sdk/_bundled/claude",
)
ENV = {
    "CLAUDE_CONFIG_DIR": "/home/agent/.claude",
    # Else it talks to its maker at every start, whatever base URL it is given.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "4",
    # Suites take longer than the two minutes it gives a command, and the ten it lets the model ask for.
    "BASH_DEFAULT_TIMEOUT_MS": "600000",
    "BASH_MAX_TIMEOUT_MS": "3600000",
    # As root it would refuse to work without asking; nobody is there to be asked.
    "IS_SANDBOX": "1",
}
SETTINGS = {"attribution": {"commit": "", "pr": ""}, "includeCoAuthoredBy": False}
SERVER_TOOLS = "WebFetch,WebSearch"
"""They run at the provider, where nobody can bound what they cost or reach."""
SESSION = """\
if grep -qs '"type":"user"' "$CLAUDE_CONFIG_DIR"/projects/*/"$SESSION".jsonl
then set -- "$@" --resume "$SESSION"
else rm -f "$CLAUDE_CONFIG_DIR"/projects/*/"$SESSION".jsonl; set -- "$@" --session-id "$SESSION"
fi
told=$(for advice in CLAUDE.md AGENTS.md; do [ ! -f $advice ] || head -c 30000 $advice; done)
[ -z "$told" ] || set -- "$@" --append-system-prompt "$told"
exec "$@" <"$IRONWORKS_PROMPT\""""
"""Its own record tells whether the session exists: a crash may have come before or after it was begun.
A record in which nothing was said yet can be neither resumed nor begun again, so it goes.

Without the repository's settings it reads none of the repository's advice either: that is handed to it.
"""
NAMES = uuid.UUID("6f0f9a51-6d0c-4c55-9a77-1d1f0c5e7a11")
MAX_WORDS = 4_000
MAX_NUMBER = 1e15
COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class ClaudeCodeAgent:
    """Runs in the repository root. What it may do is decided by its sandbox, so it never asks.

    Settings and hooks of the repository are not read; its CLAUDE.md and AGENTS.md are.
    """

    name = "claude-code"

    def __init__(self, alive: Alive = never, *, folder: Path | None = None) -> None:
        self._alive = alive
        self._folder = folder or programs_folder()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return (CLAUDE_CODE.mount(self._folder),)

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        """`task.session` is continued if the sandbox has it, else begun under that name."""
        session = task.session or f"{task.stage}-{task.issue.id}"
        model = model_of(task, "Claude Code")
        env = {
            **task.env,
            **ENV,
            "ANTHROPIC_BASE_URL": model["base_url"],
            "ANTHROPIC_API_KEY": model["key"],
            "SESSION": str(uuid.uuid5(NAMES, session)),
        }
        output = _Output(transcript)
        answer = await run_program(
            sandbox,
            task.model_copy(update={"env": env}),
            transcript,
            ["sh", "-c", SESSION, "sh", *_arguments(task, model["model"])],
            alive=self._alive,
            on_line=output.line,
            session=session,
        )
        return output.completed(answer)


def _arguments(task: AgentTask, model: str) -> list[str]:
    schema = json.dumps(ANSWERS[task.stage].model_json_schema(), separators=(",", ":"))
    effort = ["--effort", task.settings.effort] if task.settings.effort else []
    return [
        CLAUDE_CODE.inside, "-p", "--output-format", "stream-json", "--verbose",
        "--dangerously-skip-permissions", "--setting-sources", "user", "--strict-mcp-config",
        "--settings", json.dumps(SETTINGS), "--disallowedTools", SERVER_TOOLS,
        "--model", model, *effort, "--json-schema", schema,
    ]  # fmt: skip


class _Output:
    """Reads the event lines: tells the transcript, keeps the result.

    They come from a sandbox, where anything may write them: what makes no sense is passed over.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._result: _Result | None = None
        self._counted: set[str] = set()
        self._tools: dict[str, str] = {}

    def line(self, line: bytes) -> None:
        try:
            event: Any = json.loads(line)
            if isinstance(event, dict):
                self._event(event)
        except (ValueError, RecursionError):
            return

    def _event(self, event: dict[str, Any]) -> None:
        kind, message = event.get("type"), event.get("message")
        if kind == "result":
            self._result = _result(event)
        elif kind == "system" and event.get("subtype") == "api_retry":
            reason, delay_s = str(event.get("error")), _number(event.get("retry_delay_ms")) / 1000
            self._transcript.event("retry", reason=reason, delay_s=delay_s)
        elif kind in ("assistant", "user") and isinstance(message, dict):
            self._message(message)

    def _message(self, message: dict[str, Any]) -> None:
        content = message.get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict):
                self._block(block)
        usage, id = message.get("usage"), str(message.get("id"))
        # One message comes as an event for each of its blocks, each time with the same usage.
        if isinstance(usage, dict) and id not in self._counted:
            self._counted.add(id)
            counts = {name: _number(usage.get(name)) for name in COUNTS}
            self._transcript.event("usage", model=str(message.get("model")), **counts)

    def _block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self._transcript.event("message", text=str(block.get("text")))
        elif kind == "thinking":
            self._transcript.event("thinking", text=str(block.get("thinking")))
        elif kind == "tool_use":
            given = json.dumps(block.get("input"))
            self._tools[str(block.get("id"))] = str(block.get("name"))
            self._transcript.event("tool_call", name=str(block.get("name")), input=given)
        elif kind == "tool_result":
            ok, name = not block.get("is_error"), self._tools.get(str(block.get("tool_use_id")), "")
            self._transcript.event("tool_result", name=name, ok=ok, text=_text(block.get("content")))

    def completed(self, answer: AgentAnswer) -> AgentAnswer:
        """The answer with what the result says: an exit code of 0 is no success, nor is silence."""
        result = self._result
        if answer.ending != "exited":
            return answer
        if result is None:
            failed = {"exit_code": 1, "handoff": None, "detail": "it gave no result"}
            return answer if answer.exit_code else answer.model_copy(update=failed)
        if result.failed:
            self._transcript.event("error", message=result.words)
            code = answer.exit_code or 1
            return answer.model_copy(update={"exit_code": code, "handoff": None, "detail": result.words})
        if answer.exit_code == 0 and result.handoff is not None:
            return answer.model_copy(update={"handoff": result.handoff})
        return answer.model_copy(update={"detail": answer.detail or result.words})


class _Result(NamedTuple):
    """What its last line says."""

    failed: bool
    words: str
    handoff: str | None
    """JSON."""


def _result(event: dict[str, Any]) -> _Result:
    errors = event.get("errors")
    words = str(event.get("result") or "; ".join(map(str, errors if isinstance(errors, list) else [])))
    # A lone surrogate could not be stored.
    words = words[:MAX_WORDS].encode("utf-8", "replace").decode()
    handoff = json.dumps(event["structured_output"]) if "structured_output" in event else None
    return _Result(bool(event.get("is_error")), words, handoff)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _number(value: Any) -> float:
    """`value` where it can count something, else 0."""
    return value if isinstance(value, int | float) and 0 <= value < MAX_NUMBER else 0
