"""The emulator's end of a connection: requests in, answers, streams and WebSocket messages out."""

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

MAX_BODY = 256 << 20
MAX_MESSAGE = 64 << 20
IDLE_S = 600.0
ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
UNUSABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What a handler stumbles over when a request has values of the wrong kind."""
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class ApiError(Exception):
    """An answer `{"error": text}` with a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Request:
    """`headers` have lower-case names; `path` and `query` are decoded."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """The body as an object; empty when there is none."""
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            raise ApiError(400, "invalid JSON body") from None
        if not isinstance(value, dict):
            raise ApiError(400, "the body must be an object")
        return value

    @property
    def is_websocket(self) -> bool:
        return self.headers.get("upgrade", "").lower() == "websocket"


@dataclass
class Reply:
    """One answer: `data` as JSON, or `raw`, or a `stream` of chunks that are sent as they come."""

    data: Any = None
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None

    def body(self) -> bytes:
        return (
            self.raw if self.raw is not None else json.dumps({} if self.data is None else self.data).encode()
        )


class Connection:
    """One client's connection, request after request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._http = h11.Connection(h11.SERVER)
        self._reader = reader
        self._writer = writer

    async def requests(self) -> AsyncIterator[Request]:
        request: Request | None = None
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await asyncio.wait_for(self._reader.read(65536), IDLE_S))
            elif isinstance(event, h11.Request):
                request = parsed(event)
                if (b"expect", b"100-continue") in event.headers:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data) and request:
                request.body += bytes(event.data)
                if len(request.body) > MAX_BODY:
                    return
            elif isinstance(event, h11.EndOfMessage) and request:
                yield request
                if self._http.our_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
            else:
                return

    async def send(self, reply: Reply) -> None:
        if reply.stream is not None:
            await self._send_stream(reply, reply.stream)
            return
        body = reply.body()
        fixed = {"content-type": "application/json", **reply.headers, "content-length": str(len(body))}
        await self._open(reply.status, fixed)
        await self._write(h11.Data(data=body), h11.EndOfMessage())

    async def send_half(self, body: bytes) -> None:
        """A promise of the whole body, half of it, and a reset."""
        await self._open(200, {"content-type": "application/json", "content-length": str(len(body))})
        await self._write(h11.Data(data=body[: len(body) // 2]))
        self.reset()

    def reset(self) -> None:
        """Ends the connection so that the client sees an error, not an end."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        raise ConnectionAbortedError("reset on demand")

    async def gone(self) -> None:
        """Returns when the client hangs up; for an answer that does not come."""
        while await self._reader.read(65536):
            pass

    async def upgrade(self, request: Request) -> "WebSocket":
        key = request.headers.get("sec-websocket-key", "").encode()
        accept = base64.b64encode(hashlib.sha1(key + ACCEPT_KEY, usedforsecurity=False).digest())
        headers = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", accept)]
        await self._write(h11.InformationalResponse(status_code=101, headers=headers))
        return WebSocket(self._reader, self._writer, self._http.trailing_data[0])

    async def _send_stream(self, reply: Reply, stream: AsyncIterator[bytes]) -> None:
        await self._open(reply.status, {**reply.headers, "transfer-encoding": "chunked"})
        async for chunk in stream:
            await self._write(h11.Data(data=chunk))
        await self._write(h11.EndOfMessage())

    async def _open(self, status: int, headers: Mapping[str, str]) -> None:
        await self._write(h11.Response(status_code=status, headers=list(headers.items())))

    async def _write(self, *events: h11.Event) -> None:
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()


class WebSocket:
    """The server's side of RFC 6455, text messages only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._early = early

    async def receive(self) -> str | None:
        """The next text message; None when the client has closed or speaks no WebSocket."""
        message = bytearray()
        while True:
            final, code, data = await self._frame()
            if code == CLOSE:
                with contextlib.suppress(OSError):
                    await self._send(CLOSE, data[:2])
                return None
            if code == PING:
                await self._send(PONG, data)
            elif code != PONG:
                message += data
                if final:
                    return message.decode("utf-8", "replace")

    async def send(self, value: Mapping[str, object]) -> None:
        await self._send(TEXT, json.dumps(value).encode())

    async def close(self) -> None:
        with contextlib.suppress(OSError):
            await self._send(CLOSE, struct.pack(">H", 1000))

    async def _frame(self) -> tuple[bool, int, bytes]:
        try:
            first, second = await self._take(2)
            size = second & 127
            if size == 126:
                size = int(struct.unpack(">H", await self._take(2))[0])
            elif size == 127:
                size = int(struct.unpack(">Q", await self._take(8))[0])
            if size > MAX_MESSAGE or not second & 128:
                return True, CLOSE, b""
            mask = await self._take(4)
            data = await self._take(size)
        except (asyncio.IncompleteReadError, OSError):
            return True, CLOSE, b""
        return bool(first & 128), first & 15, unmasked(data, mask)

    async def _take(self, count: int) -> bytes:
        early, self._early = self._early[:count], self._early[count:]
        return early + await self._reader.readexactly(count - len(early))

    async def _send(self, code: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes([128 | code, size])
        elif size < 1 << 16:
            head = bytes([128 | code, 126]) + struct.pack(">H", size)
        else:
            head = bytes([128 | code, 127]) + struct.pack(">Q", size)
        self._writer.write(head + data)
        await self._writer.drain()


def unmasked(data: bytes, mask: bytes) -> bytes:
    whole = int.from_bytes((mask * (len(data) // 4 + 1))[: len(data)], "big")
    return (int.from_bytes(data, "big") ^ whole).to_bytes(len(data), "big")


def parsed(event: h11.Request) -> Request:
    target = urlsplit(event.target.decode("latin-1"))
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
    query = dict(parse_qsl(target.query, keep_blank_values=True))
    return Request(event.method.decode("latin-1"), unquote(target.path), query, headers)


def multipart(request: Request) -> list[tuple[str, bytes]]:
    """The parts of a form by field name, in order."""
    kind, _, rest = request.headers.get("content-type", "").partition("boundary=")
    if not kind.startswith("multipart/form-data") or not rest:
        raise ApiError(400, "a multipart form is needed")
    boundary = b"\r\n--" + rest.strip('" ').encode()
    parts = []
    for piece in (b"\r\n" + request.body).split(boundary)[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        name = head.decode("utf-8", "replace").partition(' name="')[2].partition('"')[0]
        parts.append((name, data))
    return parts


Answer = Callable[[Request, Connection], Awaitable[None]]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
    """One connection to its end, whatever comes."""
    connection = Connection(reader, writer)
    try:
        async for request in connection.requests():
            await answer(request, connection)
    except (OSError, h11.RemoteProtocolError, TimeoutError, asyncio.IncompleteReadError):
        pass  # the client's own affair: it went away, or does not speak HTTP
    except asyncio.CancelledError:
        pass  # the emulator is closing; asyncio would report a cancelled connection as an error
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()
