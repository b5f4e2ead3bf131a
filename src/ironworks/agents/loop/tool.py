"""What the model can do: the shell, files, and the factory outside."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .event import Message, Stop, emit
from .wire import MAX_ANSWER, post

MAX_TOOL_TEXT = 30_000
MAX_READ = 10_000_000
TOOL_WAIT_S = 7200


def bash(command: str, timeout_s: int = 600) -> str:
    shell = shutil.which("bash") or "/bin/sh"
    process = subprocess.Popen(
        [shell, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = Output(process)
    try:
        note = f"[exit {process.wait(min(timeout_s, TOOL_WAIT_S))}]"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        note = f"[stopped after {timeout_s} s]"
    return f"{output.text()}\n{note}"


class Output:
    """Reads what a command prints meanwhile, in bounded memory; who stays alive may keep the pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.pipe = process.stdout
        self.head = b""
        self.tail = b""
        self.dropped = 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        with self.pipe:
            self.take()

    def take(self) -> None:
        told_s = time.monotonic()
        while data := os.read(self.pipe.fileno(), 65536):
            room = MAX_TOOL_TEXT // 4 - len(self.head)
            self.head += data[: max(0, room)]
            kept = self.tail + data[max(0, room) :]
            self.tail = kept[-MAX_TOOL_TEXT:]
            self.dropped += len(kept) - len(self.tail)
            if time.monotonic() - told_s > 5:
                told_s = time.monotonic()
                emit("progress")  # shows the outside that the command still does something

    def text(self) -> str:
        self.thread.join(1.0)
        middle = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace")


def read(path: str, offset: int = 1, limit: int = 2000) -> str:
    with Path(path).open("rb") as file:
        data = file.read(MAX_READ)
    if b"\0" in data:
        return f"{path} is a binary file"
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(lines[max(0, offset - 1) :][:limit])


def write(path: str, content: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content.encode("utf-8", "surrogateescape"))
    return f"wrote {path}"


def edit(path: str, old: str, new: str) -> str:
    text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    if not old or (count := text.count(old)) == 0:
        raise ValueError(f"`old` is not in {path}; read the file again")
    if count > 1:
        raise ValueError(f"`old` is {count} times in {path}; give more of what is around it")
    Path(path).write_bytes(text.replace(old, new).encode("utf-8", "surrogateescape"))
    return f"edited {path}"


def factory(verb: str, body: bytes) -> tuple[int, str]:
    """Asks the factory outside; status and text."""
    url = os.environ.get("IW_URL", "")
    if not url:
        return 404, "there is no factory to ask here"
    try:
        with post(f"{url}/{verb}", body, {}, TOOL_WAIT_S) as response:
            return response.status, response.read(MAX_ANSWER).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 599, f"the factory cannot be reached: {error}"


def check() -> str:
    status, text = factory("check", b"{}")
    if status == 409:
        raise Stop(text, 4)
    if status not in {200, 422}:
        raise ValueError(text)
    return text


def ask(question: str) -> str:
    status, text = factory("ask", json.dumps({"question": question}).encode())
    if status != 200:
        raise ValueError(text)
    return text


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS: dict[str, tuple[Callable[..., str], str, dict[str, dict[str, str]], list[str]]] = {
    "bash": (bash, "Run a shell command.", {"command": TEXT, "timeout_s": NUMBER}, ["command"]),
    "read": (read, "Read a file, by lines.", {"path": TEXT, "offset": NUMBER, "limit": NUMBER}, ["path"]),
    "write": (write, "Write a whole file.", {"path": TEXT, "content": TEXT}, ["path", "content"]),
    "edit": (
        edit,
        "Replace the one place where `old` stands in a file.",
        {"path": TEXT, "old": TEXT, "new": TEXT},
        ["path", "old", "new"],
    ),
    "check": (check, "Run the tests; tells only what fails newly.", {}, []),
    "ask": (ask, "Ask a person, and pause until they answer.", {"question": TEXT}, ["question"]),
}


def offered(names: list[str], schema: Message) -> list[Message]:
    tools = [
        {
            "name": name,
            "description": TOOLS[name][1],
            "input_schema": {"type": "object", "properties": TOOLS[name][2], "required": TOOLS[name][3]},
        }
        for name in names
    ]
    return [
        *tools,
        {"name": "handoff", "description": "Hand off your result and end.", "input_schema": schema},
    ]


def call(name: str, arguments: Any) -> str:
    """What a tool says; ValueError and OSError are for the model."""
    if name not in TOOLS:
        raise ValueError(f"there is no tool {name}")
    function, _, properties, required = TOOLS[name]
    if not isinstance(arguments, dict) or not arguments.keys() <= properties.keys():
        raise ValueError(f"{name} takes {', '.join(properties) or 'nothing'}")
    if missing := [key for key in required if key not in arguments]:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    for key, value in arguments.items():
        if not isinstance(value, str if properties[key] is TEXT else int):
            raise ValueError(f"{key} must be a {properties[key]['type']}")
    return function(**arguments)
