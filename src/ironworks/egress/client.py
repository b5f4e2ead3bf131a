"""The sandbox's side of a connection: requests in, answers out, every size and every wait bounded."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import h11

from ironworks.egress.header import Headers
from ironworks.egress.refusal import Refusal

HEAD_BYTES = 64 << 10
BODY_BYTES = 32 << 20
LINGER_S, LINGER_BYTES = 3.0, 64 << 20
_READ = 1 << 16

ALL_BODIES_BYTES = 96 << 20
"""What the requests of one sandbox may hold of the host's memory together."""

H11Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]
Handler = Callable[["Request", "Reply"], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """How long the gateway waits for a sandbox."""

    idle_s: float = 120.0
    head_s: float = 30.0
    """From the first byte of a request to the end of its head: a slow sender is cut off."""
    body_s: float = 120.0
    write_s: float = 600.0
    """A paused sandbox reads nothing for a while."""


@dataclass(frozen=True)
class Request:
    """A whole request as it arrived; `headers` have lower-case names."""

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)


class Room:
    """Memory that the connections of one sandbox share."""

    def __init__(self) -> None:
        self._free = ALL_BODIES_BYTES

    def take(self, size: int) -> None:
        if size > self._free:
            raise Refusal(503, "too-much", "this sandbox has too many large requests under way")
        self._free -= size

    def give(self, size: int) -> None:
        self._free += size


class Gone(Exception):
    """The other side has left, or does not follow the protocol any more; there is nobody to answer."""


class Reply:
    """Writes one answer. Without a body length the answer is chunked."""

    def __init__(self, client: "Client", method: str) -> None:
        self._client = client
        self._bodiless = method == "HEAD"
        self.started = False

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._client.write(h11.Response(status_code=status, headers=headers))

    async def write(self, data: bytes) -> None:
        if data and not self._bodiless:
            await self._client.write(h11.Data(data=data))

    async def end(self) -> None:
        await self._client.write(h11.EndOfMessage())

    async def send(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.write(body)
        await self.end()

    async def switch(self) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Accept a CONNECT: a tunnel from now on. Returns bytes that came early, and the streams."""
        await self.start(200, [])
        early, _ = self._client.http.trailing_data
        return early, self._client.reader, self._client.writer


class Client:
    """One connection from inside a sandbox."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: Limits,
        room: Room,
        *,
        on_traffic: Callable[[], None],
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._limits = limits
        self._room = room
        self._taken = 0
        self._on_traffic = on_traffic

    async def serve(self, handle: Handler) -> None:
        """Answer request after request with `handle`, which raises Gone when it cannot any more."""
        try:
            while (request := await self._request()) is not None:
                reply = Reply(self, request.method)
                if request.method == "CONNECT":
                    await handle(request, reply)
                    break
                await self._attend(handle(request, reply))
                if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                    break
                self.http.start_next_cycle()
                self._give_room()
        except Refusal as refusal:
            await self._refuse(refusal)
        except (Gone, OSError):
            pass
        except BaseException:
            self.writer.transport.abort()
            raise
        finally:
            self._give_room()
        await self._close()

    async def write(self, event: h11.Event) -> None:
        try:
            self.writer.write(self.http.send(event) or b"")
            async with asyncio.timeout(self._limits.write_s):
                await self.writer.drain()
        except (OSError, h11.LocalProtocolError):
            raise Gone from None
        self._on_traffic()

    async def _request(self) -> Request | None:
        head = await self._head()
        if not isinstance(head, h11.Request):
            return None
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in head.headers}:
            raise Refusal(400, "bad-request", "a request has a content-length or chunks, not both")
        if self.http.they_are_waiting_for_100_continue:
            await self.write(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                while isinstance(part := await self._event(), h11.Data):
                    self._room.take(len(part.data))
                    self._taken += len(part.data)
                    body += part.data
                    if len(body) > BODY_BYTES:
                        raise Refusal(
                            413, "too-large", f"a request body is limited to {BODY_BYTES >> 20} MiB"
                        )
        except TimeoutError:
            raise Refusal(408, "too-slow", "the request body did not arrive in time") from None
        method, target = head.method.decode(), head.target.decode("latin-1")
        return Request(method, target, list(head.headers), bytes(body))

    def _give_room(self) -> None:
        self._room.give(self._taken)
        self._taken = 0

    async def _head(self) -> H11Event:
        if not self.http.trailing_data[0]:
            try:
                async with asyncio.timeout(self._limits.idle_s):
                    await self._receive()
            except TimeoutError:
                raise Gone from None
        try:
            async with asyncio.timeout(self._limits.head_s):
                return await self._event()
        except TimeoutError:
            raise Refusal(408, "too-slow", "the request head did not arrive in time") from None

    async def _event(self) -> H11Event:
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                await self._receive()
        except h11.RemoteProtocolError as error:
            raise Refusal(
                error.error_status_hint, "bad-request", f"not a proper HTTP request: {error}"
            ) from None
        return event

    async def _receive(self) -> None:
        self.http.receive_data(await self.reader.read(_READ))
        self._on_traffic()

    async def _attend(self, handling: Awaitable[None]) -> None:
        """Wait for the answer to be complete, and stop working on it when the client leaves."""
        work = asyncio.ensure_future(handling)
        watch = asyncio.ensure_future(self._leaves(work))
        try:
            await work
        except asyncio.CancelledError:
            if work.cancelled() and watch.done():
                raise Gone from None
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _leaves(self, work: "asyncio.Future[None]") -> None:
        early = 0
        while early <= HEAD_BYTES:
            data = await self.reader.read(_READ)
            if not data:
                break
            # The next request, sent early: kept for later.
            early += len(data)
            self.http.receive_data(data)
        work.cancel()

    async def _refuse(self, refusal: Refusal) -> None:
        body = f"{refusal}\n".encode()
        with contextlib.suppress(Gone, OSError):
            if self.http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
                await Reply(self, "").send(refusal.status, headers, body)

    async def _close(self) -> None:
        """Let the client read the answer first: closing with unread input would reset the connection."""
        try:
            if not self.writer.is_closing():
                self.writer.write_eof()
                async with asyncio.timeout(LINGER_S):
                    left = LINGER_BYTES
                    while left > 0 and (data := await self.reader.read(_READ)):
                        left -= len(data)
        except OSError:
            pass
        finally:
            self.writer.transport.abort()
