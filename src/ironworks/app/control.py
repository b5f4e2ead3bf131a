"""How a person's command reaches a running factory at once: one line of JSON over a Unix socket.

The command itself is first written to the store's inbox, so that it is not lost when no factory listens; the
socket only says "look". `stop` is the exception: it is for the process that runs now, and for no later one.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from ironworks.core.errors import UsageError

Verb = Literal["stop", "pause", "resume", "retry", "answer", "look"]
VERBS: tuple[str, ...] = get_args(Verb)
LINE_BYTES = 65_536
TIMEOUT_S = 5.0

OnMessage = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Called with the verb and the whole message; what it returns is added to the answer."""


@contextlib.asynccontextmanager
async def control_server(path: Path, on_message: OnMessage) -> AsyncIterator[None]:
    """Listen on `path` (a left-over socket is replaced; the caller holds the lock) until the block ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(TIMEOUT_S):
                answer = await _answer(await reader.readline(), on_message)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    listener = listen_on(path)
    server = await asyncio.start_unix_server(serve, sock=listener, limit=LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        remove_socket(path)


def listen_on(path: Path) -> socket.socket:
    remove_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with reachable(path) as address:
        listener.bind(address)
    path.chmod(0o600)
    return listener


def remove_socket(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _answer(line: bytes, on_message: OnMessage) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or message.get("verb") not in VERBS:
        return {"ok": False, "error": f"a message is one JSON object whose verb is one of {', '.join(VERBS)}"}
    return {"ok": True} | (await on_message(str(message["verb"]), message) or {})


def send(path: Path, verb: Verb, **fields: Any) -> dict[str, Any] | None:
    """Tell the factory that listens on `path`; its answer, or None; UsageError when it refuses."""
    line = json.dumps({"verb": verb, **fields}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, reachable(path) as address:
            client.settimeout(TIMEOUT_S)
            client.connect(address)
            client.sendall(line)
            received = client.makefile("rb").readline(LINE_BYTES)
        answer = json.loads(received)
    except (OSError, ValueError):
        return None
    if not isinstance(answer, dict) or not answer.get("ok"):
        raise UsageError(
            f"the factory refused: {answer.get('error') if isinstance(answer, dict) else 'no answer'}"
        )
    return answer


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """An address for a socket at any path: the kernel takes 107 bytes, a long one goes by its folder."""
    if len(os.fsencode(path)) <= 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
