"""A provider and a web server of our own on loopback, and a client that talks like a sandbox."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """A request as it reached the stub."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Behaviour = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Stub:
    """Answers each request with `behaviour` and remembers it; closes the connection afterwards."""

    behaviour: Behaviour
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    broken: int = 0
    """Connections that ended before a whole request had come or while it was being answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(reader)
            self.seen.append(request)
            await self.behaviour(request, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            self.broken += 1
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head[:-4].split("\r\n")
    method, target, _ = line.split(" ")
    headers = [(name, value) for name, _, value in (text.partition(": ") for text in fields)]
    request = Seen(method, target, headers, b"")
    request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


@asynccontextmanager
async def stub(behaviour: Behaviour) -> AsyncIterator[Stub]:
    made = Stub(behaviour)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def answer(
    body: bytes, *, status: str = "200 OK", headers: str = "Content-Type: application/json\r\n"
) -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def always(data: bytes) -> Behaviour:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return behave


def message(input_tokens: int = 100, output_tokens: int = 10, **more: int) -> bytes:
    """A complete Messages answer."""
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, **more}
    return json.dumps({"type": "message", "model": "m", "content": [], "usage": usage}).encode()


def event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def stream_events(input_tokens: int = 100, output_tokens: int = 10) -> list[bytes]:
    """A Messages answer as server-sent events."""
    text = {"type": "text_delta", "text": "hello"}
    return [
        event("message_start", message={"usage": {"input_tokens": input_tokens, "output_tokens": 1}}),
        event("content_block_delta", index=0, delta=text),
        event("message_delta", delta={}, usage={"output_tokens": output_tokens}),
        event("message_stop"),
    ]


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = 30,
) -> Reply:
    """One request as an ordinary client sends it. Blocking: call it with `asyncio.to_thread`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, fields, response.read())
    finally:
        connection.close()


def raw(port: int, data: bytes, *, timeout_s: float = 3) -> bytes:
    """Send bytes as they are and read until the other side closes, or is silent for `timeout_s`. Blocking."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        parts = []
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                parts.append(part)
        except OSError:
            # Cut off, or silent for too long: what came until then is the answer.
            pass
    return b"".join(parts)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another task or thread does; TimeoutError when it does not."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
