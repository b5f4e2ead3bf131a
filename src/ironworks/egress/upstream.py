"""One HTTP exchange with another machine: a fresh connection, the request, and the answer as it comes."""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import h11

from ironworks.egress.allowlist import Destination
from ironworks.egress.header import Headers
from ironworks.egress.refusal import Refusal

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CONNECT_S = 15.0
ANSWER_S = 900.0
"""The longest silence of a server that is expected to answer: a model may think for minutes."""
_READ = 1 << 16


@dataclass(frozen=True)
class Outgoing:
    """A request as it will be written: its body is whole, its framing ours."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""


@dataclass
class Answer:
    """Status and headers of an answer; `chunks` yields its body once, unbuffered."""

    status: int
    headers: Headers
    _connection: h11.Connection
    _reader: asyncio.StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises Refusal when the server stops in the middle."""
        while True:
            event = await _next(self._connection, self._reader)
            if isinstance(event, h11.EndOfMessage):
                return
            if not isinstance(event, h11.Data):
                raise Refusal(502, "upstream-broke-off", "the server broke off in the middle of its answer")
            yield bytes(event.data)


@functools.cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def dial(to: Destination, *, tls: bool) -> Streams:
    """A connection to one of the checked addresses. Refusal when none answers."""
    context = _tls() if tls else None
    name = to.host if tls else None
    for address in to.addresses:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(CONNECT_S):
                return await asyncio.open_connection(address, to.port, ssl=context, server_hostname=name)
    raise Refusal(502, "unreachable", f"{to.host}:{to.port} cannot be reached from the host")


@contextlib.asynccontextmanager
async def exchange(streams: Streams, to: Destination, outgoing: Outgoing) -> AsyncIterator[Answer]:
    """Send the request on a dialled connection and wait for the head of the answer. Refusal when there is no
    proper one: what the server did with the request is not known then."""
    reader, writer = streams
    try:
        await _send(
            writer, connection := h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 17), to, outgoing
        )
        head = await _next(connection, reader)
        while isinstance(head, h11.InformationalResponse):
            head = await _next(connection, reader)
        if not isinstance(head, h11.Response):
            raise Refusal(502, "no-answer", f"{to.host} closed the connection without an answer")
        yield Answer(head.status_code, list(head.headers), connection, reader)
    finally:
        writer.transport.abort()


async def _send(
    writer: asyncio.StreamWriter, connection: h11.Connection, to: Destination, outgoing: Outgoing
) -> None:
    framing = [(b"host", to.authority.encode()), (b"connection", b"close")]
    if outgoing.body or outgoing.method in {"POST", "PUT", "PATCH"}:
        framing.append((b"content-length", str(len(outgoing.body)).encode()))
    try:
        request = h11.Request(
            method=outgoing.method, target=outgoing.target, headers=[*framing, *outgoing.headers]
        )
        for event in (request, h11.Data(data=outgoing.body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
    except h11.LocalProtocolError:
        raise Refusal(400, "bad-request", "the request cannot be passed on as it is") from None
    # A server may answer before it has read everything: its answer is worth more than our error.
    with contextlib.suppress(OSError):
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()


async def _next(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(ANSWER_S):
                connection.receive_data(await reader.read(_READ))
    except (OSError, h11.RemoteProtocolError) as error:
        raise Refusal(502, "bad-answer", f"the server's answer broke off ({type(error).__name__})") from None
    return event
