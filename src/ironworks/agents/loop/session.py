"""The conversation on disk."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from .event import Message, clip
from .tool import MAX_TOOL_TEXT

MAX_TALK = 600_000
INTERRUPTED = "interrupted: the agent was stopped during this call; see what it did before you repeat it"


class Session:
    """The conversation, on disk after every message, so that a crash or a later round can continue it."""

    def __init__(self, name: str, *, resume: bool) -> None:
        self.path = Path.home() / ".ironworks" / f"{name}.json"
        self.messages: list[Message] = []
        if resume:
            with contextlib.suppress(OSError, ValueError):
                self.messages = json.loads(self.path.read_bytes())

    def add(self, role: str, content: list[Message]) -> None:
        self.messages.append({"role": role, "content": content})
        self.shorten()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.messages), "utf-8")
        fresh.replace(self.path)

    def open(self, prompt: str) -> None:
        """Adds the prompt, after an answer to calls that a crash cut off."""
        last: Message = self.messages[-1] if self.messages else {"role": "user", "content": []}
        cut = [
            block for block in last["content"] if last["role"] == "assistant" and block["type"] == "tool_use"
        ]
        results = [result(block["id"], INTERRUPTED, failed=True) for block in cut]
        self.add("user", [*results, {"type": "text", "text": prompt}])

    def shorten(self) -> None:
        """Forgets what tools said long ago once the conversation is too long for a model."""
        if len(json.dumps(self.messages)) < MAX_TALK:
            return
        for message in self.messages[:-10]:
            for block in message["content"]:
                if block["type"] == "tool_result" and len(block["content"]) > 200:
                    block["content"] = "[left out]"


def result(id: str, text: str, *, failed: bool = False) -> Message:
    return {
        "type": "tool_result",
        "tool_use_id": id,
        "content": clip(text, MAX_TOOL_TEXT) or "(nothing)",
        "is_error": failed,
    }
