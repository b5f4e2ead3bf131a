"""The conversation on disk."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from .event import Message, clip
from .tool import MAX_TOOL_TEXT

MAX_TALK = 600_000
NUDGE = "You stopped without handing off. Go on, and when you are done call the `handoff` tool."
INTERRUPTED = "interrupted: the agent was stopped during this call; see what it did before you repeat it"


class Session:
    """The conversation, on disk after every message, so that a crash or a later round can continue it."""

    def __init__(self, name: str, *, resume: bool) -> None:
        self.path = Path.home() / ".ironworks" / f"{name}.json"
        self.messages: list[Message] = []
        if resume:
            with contextlib.suppress(OSError, ValueError, TypeError):
                self.messages = list(json.loads(self.path.read_bytes()))

    def add(self, role: str, content: list[Message]) -> None:
        self.messages.append({"role": role, "content": content})
        self.shorten()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.messages), "utf-8")
        fresh.replace(self.path)

    def open(self, *texts: str) -> None:
        """Answers calls that a crash cut off, and adds the prompt unless it is worked on already."""
        last: Message = self.messages[-1] if self.messages else {"role": "user", "content": []}
        calls = calls_of(last) if last["role"] == "assistant" else []
        content = [result(block["id"], INTERRUPTED, failed=True) for block in calls]
        if self.prompt() != texts[0]:
            content += [{"type": "text", "text": text} for text in texts]
        elif last["role"] == "assistant" and not calls:
            content.append({"type": "text", "text": NUDGE})
        if content:
            self.add("user", content)

    def prompt(self) -> str | None:
        """The prompt that is worked on."""
        for message in reversed(self.messages):
            for block in message["content"] if message["role"] == "user" else ():
                if block["type"] == "text" and block["text"] != NUDGE:
                    return str(block["text"])
        return None

    def handed_off(self) -> Message | None:
        """The accepted handoff the conversation ends with: a crash came between it and the end."""
        if len(self.messages) < 2:
            return None
        accepted = {
            block["tool_use_id"]
            for block in self.messages[-1]["content"]
            if block["type"] == "tool_result" and not block["is_error"]
        }
        calls = calls_of(self.messages[-2])
        return next((c for c in calls if c["name"] == "handoff" and c["id"] in accepted), None)

    def shorten(self) -> None:
        """Forgets what tools said long ago once the conversation is too long for a model."""
        if len(json.dumps(self.messages)) < MAX_TALK:
            return
        for message in self.messages[:-10]:
            for block in message["content"]:
                if block["type"] == "tool_result" and len(block["content"]) > 200:
                    block["content"] = "[left out]"


def calls_of(message: Message) -> list[Message]:
    return [block for block in message["content"] if block["type"] == "tool_use"]


def result(id: str, text: str, *, failed: bool = False) -> Message:
    return {
        "type": "tool_result",
        "tool_use_id": id,
        "content": clip(text, MAX_TOOL_TEXT) or "(nothing)",
        "is_error": failed,
    }
