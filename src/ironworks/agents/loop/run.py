"""Turn after turn, until the model hands off."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .event import MAX_SHOWN, Message, Stop, clip, emit
from .session import NUDGE, Session, calls_of, result
from .tool import call, factory, offered
from .wire import Client


def hand_off(value: Any, path: str) -> str:
    """Leaves the handoff where the factory looks, unless the factory says what is wrong with it."""
    data = json.dumps(value).encode()
    status, text = factory("handoff", data)
    if status == 422:
        raise ValueError(text)
    Path(path).write_bytes(data)
    return "accepted"


def act(block: Message, path: str) -> tuple[Message, bool]:
    """The result of one tool call, and whether it was the handoff."""
    name, arguments = block["name"], block["input"]
    emit("tool_call", name=name, input=clip(json.dumps(arguments), MAX_SHOWN))
    try:
        text = hand_off(arguments, path) if name == "handoff" else call(name, arguments)
        failed = False
    except (OSError, ValueError) as error:
        text, failed = str(error), True
    emit("tool_result", name=name, ok=not failed, text=clip(text, MAX_SHOWN))
    return result(block["id"], text, failed=failed), name == "handoff" and not failed


def turn(session: Session, ask: Callable[[list[Message]], Message], path: str) -> bool:
    """One answer of the model and what it calls for; whether it handed off."""
    message = ask(session.messages)
    emit("usage", model=message.get("model"), **(message.get("usage") or {}))
    for block in message["content"]:
        if block["type"] == "text":
            emit("message", text=clip(block["text"], MAX_SHOWN))
    if message.get("stop_reason") == "refusal" or not message["content"]:
        raise Stop("the model refused", 3)
    session.add("assistant", message["content"])
    calls = calls_of(message)
    if not calls:
        if Path(path).exists():  # left by `iw handoff`, in the shell
            return True
        session.add("user", [{"type": "text", "text": NUDGE}])
        return False
    done = [act(block, path) for block in calls]
    session.add("user", [answer for answer, _ in done])
    return any(handed for _, handed in done)


def work(task: dict[str, Any]) -> None:
    session = Session(task["session"], resume=task["resume"])
    prompt = Path(os.environ["IRONWORKS_PROMPT"]).read_text("utf-8")
    # A later prompt tells only what is new: where the session is gone, the issue must be found.
    lost = task["resume"] and not session.messages
    note = [f"The issue as JSON is in {os.environ['IRONWORKS_ISSUE']}."] if lost else []
    handed = session.handed_off() if session.prompt() == prompt else None
    if handed and act(handed, os.environ["IRONWORKS_HANDOFF"])[1]:
        return
    session.open(prompt, *note)
    client = Client(task, offered(task["tools"], task["schema"]))
    nudges = 0
    for _ in range(task["max_turns"]):
        if turn(session, client.ask, os.environ["IRONWORKS_HANDOFF"]):
            return
        nudges += session.messages[-1]["content"][0].get("text") == NUDGE
        if nudges > 2:
            raise Stop("the model ended without a handoff", 3)
    raise Stop(f"no handoff in {task['max_turns']} turns", 3)


def main() -> None:
    code = 0
    try:
        work(json.loads(Path(sys.argv[1]).read_bytes()))
    except Stop as stop:
        emit("error", message=str(stop))
        print(stop, file=sys.stderr, flush=True)
        code = stop.code
    # At once: the thread that reads a pipe some background process keeps must not delay the end.
    os._exit(code)
