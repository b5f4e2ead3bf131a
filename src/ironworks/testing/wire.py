"""The Anthropic Messages wire format, from the model's side: what was asked, and the answers."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ironworks.agents.prompt import HEADER
from ironworks.core.ports import WORK_DIR
from ironworks.testing.script import SayStep, Seen, Step, TokenCount

INTERRUPTED = "interrupted:"
"""How a tool result begins whose call never finished; the scripted model then repeats the step."""
ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
EDIT = """\
import pathlib, sys
file, (old, new) = pathlib.Path(sys.argv[1]), sys.argv[2:]
text = file.read_text()
if text.count(old) != 1:
    sys.exit(f"found {text.count(old)} times")
file.write_text(text.replace(old, new))
"""
TEXT_KEYS = frozenset({"type", "text", "cache_control", "citations"})
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "bash": ("command",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("path", "old", "new"),
    "check": (),
    "ask": ("question",),
}


def seen(messages: list[Any]) -> Seen | None:
    """What a conversation shows; None when no prompt of ours is in it."""
    found: Seen | None = None
    results: list[str] = []
    for message in messages:
        for block in blocks_of(message):
            text = str(block.get("text", ""))
            header = HEADER.match(text) if message.get("role") == "user" else None
            if header:
                place = header.groupdict()
                found = Seen(
                    stage=place["stage"], issue=place["issue"], round=int(place["round"]), prompt=text
                )
                results = []
            if block.get("type") == "tool_result" and not text_of(block).startswith(INTERRUPTED):
                results.append(text_of(block))
    return found.model_copy(update={"results": tuple(results)}) if found else None


def flaw(messages: list[Any]) -> str:
    """What a real provider would refuse about the conversation; empty if nothing."""
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "system":
            continue  # Notes on the way, which some clients put between a call and its result.
        blocks = blocks_of(message)
        given = {str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
        if given != waiting:
            return "every tool_use needs its tool_result in the next message, and no other"
        waiting = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
        for block in blocks:
            if block.get("type") == "text" and (not block.get("text") or block.keys() - TEXT_KEYS):
                return "a text block has text and nothing else"
        if not blocks:
            return "a message needs content"
    return "" if not waiting else "the conversation ends with a tool_use"


def blocks_of(message: Any) -> list[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def text_of(block: dict[str, Any]) -> str:
    """The text of a tool result, whichever of its two shapes it has."""
    return "".join(str(part.get("text", "")) for part in blocks_of(block))


def answer(step: Step, request: dict[str, Any], about: Seen, usage: TokenCount) -> dict[str, Any]:
    """The whole message that `step` gives; the same request gets the same ids."""
    content: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
    if not isinstance(step, SayStep):
        name, arguments = _call(step, request)
        content.append(
            {"type": "tool_use", "id": _id("toolu", request, about), "name": name, "input": arguments}
        )
    return {
        "id": _id("msg", request, about),
        "type": "message",
        "role": "assistant",
        "model": request.get("model", ""),
        "content": content or [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn" if isinstance(step, SayStep) else "tool_use",
        "stop_sequence": None,
        "usage": usage.model_dump(),
    }


def _call(step: Step, request: dict[str, Any]) -> tuple[str, Any]:
    """Name and input of the tool that does it, among those the client offers."""
    tools = request.get("tools")
    offered = (
        {tool.get("name") for tool in tools if isinstance(tool, dict)} if isinstance(tools, list) else set()
    )
    if "Bash" in offered and step.kind not in offered:
        return _claude_code_call(step, "StructuredOutput" in offered, _open_files(request["messages"]))
    return step.kind, _arguments(step)


def _open_files(messages: list[Any]) -> set[str]:
    """Paths that its tools have read or written since our latest prompt: it edits no others."""
    paths: set[str] = set()
    for message in messages:
        for block in blocks_of(message):
            if message.get("role") == "user" and HEADER.match(str(block.get("text", ""))):
                paths = set()
            given = block.get("input")
            if block.get("type") == "tool_use" and isinstance(given, dict):
                paths.add(str(given.get("file_path")))
    return paths


def _claude_code_call(step: Step, typed: bool, open_files: set[str]) -> tuple[str, Any]:
    """The same with Claude Code's tools, which want absolute paths."""
    if step.kind == "read":
        return "Read", {"file_path": f"{WORK_DIR}/{step.path}"}
    if step.kind == "write":
        return "Write", {"file_path": f"{WORK_DIR}/{step.path}", "content": step.content}
    if step.kind == "edit" and f"{WORK_DIR}/{step.path}" in open_files:
        return "Edit", {
            "file_path": f"{WORK_DIR}/{step.path}",
            "old_string": step.old,
            "new_string": step.new,
        }
    if step.kind == "handoff" and typed:
        return "StructuredOutput", step.value
    return "Bash", {"command": _command(step)}


def _command(step: Step) -> str:
    if step.kind == "edit":
        return shlex.join(["python3", "-c", EDIT, step.path, step.old, step.new])
    if step.kind == "ask":
        return f"iw ask {shlex.quote(step.question)}"
    if step.kind == "handoff":
        return f"printf %s {shlex.quote(json.dumps(step.value))} >/tmp/handoff && iw handoff /tmp/handoff"
    return step.command if step.kind == "bash" else "iw check"


def _arguments(step: Step) -> Any:
    if step.kind == "handoff":
        return step.value
    data = step.model_dump()
    return {name: data[name] for name in ARGUMENTS[step.kind]}


def _id(prefix: str, request: dict[str, Any], about: Seen) -> str:
    # The length of the conversation is part of it: a repeated step must not repeat an id.
    parts = (about.stage, about.issue, about.round, about.step, len(request.get("messages", ())))
    return f"{prefix}_{hashlib.sha256(repr(parts).encode()).hexdigest()[:22]}"


def events(message: dict[str, Any]) -> Iterator[bytes]:
    """The message as server-sent events, one encoded event at a time."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": usage})
    yield _event({"type": "message_stop"})


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    if block["type"] == "text":
        empty, kind, key, whole = {**block, "text": ""}, "text_delta", "text", block["text"]
    else:
        whole = json.dumps(block["input"])
        empty, kind, key = {**block, "input": {}}, "input_json_delta", "partial_json"
    yield _event({"type": "content_block_start", "index": index, "content_block": empty})
    for piece in re.findall(r"(?s).{1,2000}", whole):
        yield _event({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}})
    yield _event({"type": "content_block_stop", "index": index})


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def error_body(status: int, message: str) -> bytes:
    kind = ERROR_TYPES.get(status, "api_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
