"""The emulated service on a port of 127.0.0.1: who asks, what goes wrong, who answers."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ironworks.core.clock import Clock
from ironworks.core.errors import IronworksError
from ironworks.testing.upstash import admin, agent, disk, life, repository, settings, work
from ironworks.testing.upstash.box import Box
from ironworks.testing.upstash.clock import ScaledClock
from ironworks.testing.upstash.egress import Exchange
from ironworks.testing.upstash.fault import Creation, Fault
from ironworks.testing.upstash.http import UNUSABLE, ApiError, Connection, Reply, Request, serve
from ironworks.testing.upstash.service import Call, Options, Route, Service

KEY = "sk-test-box"
TICK_S = 0.1
MAX_RECORDED = 10_000
ROUTES: list[Route] = [
    *life.ROUTES,
    *work.ROUTES,
    *disk.ROUTES,
    *repository.ROUTES,
    *settings.ROUTES,
    *agent.ROUTES,
]
HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
HTML_TYPE = {"content-type": "text/html"}


@dataclass(frozen=True)
class Seen:
    """One request as the emulator answered it. `status`: 101 for a session, 0 when no answer was finished."""

    method: str
    path: str
    key: str
    body: Any
    status: int
    fault: str
    at_s: float
    """Monotonic time of arrival."""


class UpstashEmulator:
    """A stand-in for the service: `async with UpstashEmulator(folder) as emulator`, then `emulator.base_url`.

    Boxes are real: a root folder and processes of their own behind bubblewrap, with the workspace at
    `/workspace/home`. They end with the emulator, and their disks go with it. Where the host cannot start
    them, the first use of a box is answered with 500 and the reason.
    """

    def __init__(
        self,
        state: Path,
        *,
        keys: Collection[str] = (KEY,),
        clock: Clock | None = None,
        options: Options | None = None,
        port: int = 0,
    ) -> None:
        """`state` is made if missing; one emulator at a time. Each of `keys` is a tenant of its own."""
        self.clock = clock or ScaledClock()
        self.requests: deque[Seen] = deque(maxlen=MAX_RECORDED)
        self.base_url = ""
        self.keys = frozenset(keys)
        self.service = Service(state.absolute(), self.clock, options or Options())
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.service.open()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._ticking = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None and self._ticking is not None
        self._server.close()
        self._ticking.cancel()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(self._ticking, *self._connections, return_exceptions=True)
        await self.service.close()

    def boxes(self) -> list[Box]:
        """Every box that was not deleted, of every tenant: what a test asserts to be empty at its end."""
        return self.service.boxes()

    def exchanges(self, box_id: str | None = None) -> list[Exchange]:
        """What went out of the boxes, or was kept from it."""
        return [seen for seen in self.service.egress.exchanges if box_id in {None, seen.box_id}]

    def select(self, method: str = "", path: str = "") -> list[Seen]:
        """The recorded requests of a method whose path ends with `path`."""
        return [seen for seen in self.requests if method in {"", seen.method} and seen.path.endswith(path)]

    def spoil(self, fault: Fault) -> None:
        self.service.faults.add(fault)

    def next_creation(self, creation: Creation) -> None:
        """How the next box comes to be; called again, the one after it."""
        self.service.creations.append(creation)

    async def advance(self, by_s: float) -> None:
        """Jump forwards and let happen what is then due; needs a `ScaledClock`."""
        if not isinstance(self.clock, ScaledClock):
            raise TypeError("the clock was given from outside: move it there, then await tick()")
        self.clock.advance(by_s)
        await self.tick()

    async def tick(self) -> None:
        """Let happen what is due; also called every moment by itself."""
        await self.service.tick()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            with contextlib.suppress(IronworksError, OSError):
                await self.tick()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await serve(reader, writer, self._answer)
        finally:
            self._connections.discard(task)

    async def _answer(self, request: Request, connection: Connection) -> None:
        at_s = time.monotonic()
        if request.path.startswith("/emulator/"):
            await connection.send(await admin.answer(self, request))
            return
        fault = self.service.faults.take(request.method, request.path)
        status = 0
        try:
            status = await self._answered(request, connection, fault)
        finally:
            key = request.headers.get("x-box-api-key", "")
            seen = Seen(
                request.method, request.path, key, shown(request), status, fault.kind if fault else "", at_s
            )
            self.requests.append(seen)

    async def _answered(self, request: Request, connection: Connection, fault: Fault | None) -> int:
        if fault and not fault.after and await spoiled(fault, connection, None):
            return fault.status if fault.kind == "status" else 0
        reply = await self._reply(request, connection)
        if reply is None:
            return 101
        late = fault if fault and (fault.after or fault.kind in WRAPPING) else None
        if late and await spoiled(late, connection, reply):
            return late.status if late.kind == "status" else 0
        await connection.send(reply)
        return reply.status

    async def _reply(self, request: Request, connection: Connection) -> Reply | None:
        try:
            return await self._handle(request, connection)
        except ApiError as error:
            return Reply({"error": str(error)}, error.status)
        except IronworksError as error:
            return Reply({"error": error.message}, 500)
        except UNUSABLE as error:
            return Reply({"error": f"bad request: {error}"}, 400)

    async def _handle(self, request: Request, connection: Connection) -> Reply | None:
        key = request.headers.get("x-box-api-key", "")
        if key not in self.keys:
            raise ApiError(401, "invalid API key")
        await self.tick()
        for method, pattern, handler in ROUTES:
            found = pattern.fullmatch(request.path) if method == request.method else None
            if found:
                tenant = self.service.tenant(key)
                reply: Reply | None = await handler(
                    Call(self.service, tenant, request, connection, found.groups())
                )
                return reply
        raise ApiError(404, f"no route {request.method} {request.path}")


WRAPPING = frozenset({"split_exit", "cut", "unknown_enum"})
"""Faults that need the true answer to spoil it."""


async def spoiled(fault: Fault, connection: Connection, reply: Reply | None) -> bool:
    """Answer wrongly; False when `reply` (changed perhaps) is to be sent after all."""
    if fault.kind in WRAPPING and reply is None:
        return False
    if fault.kind == "status":
        await connection.send(Reply({"error": fault.error}, fault.status, headers=fault.headers))
    elif fault.kind == "html":
        await connection.send(Reply(raw=HTML, status=502, headers=HTML_TYPE))
    elif fault.kind == "not_json":
        await connection.send(Reply(raw=b"<!doctype html>ok", headers=HTML_TYPE))
    elif fault.kind == "stall":
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(connection.gone(), fault.stall_s)
        connection.reset()
    elif fault.kind == "reset" or (reply is not None and fault.kind == "cut" and reply.stream is None):
        await connection.send_half(reply.body() if reply is not None and reply.stream is None else b"x" * 100)
    elif reply is not None:
        change(fault, reply)
        return False
    return True


def change(fault: Fault, reply: Reply) -> None:
    if fault.kind == "unknown_enum" and reply.raw is None:
        reply.data = renamed(reply.data)
    elif reply.stream is not None:
        reply.stream = split(reply.stream) if fault.kind == "split_exit" else without_end(reply.stream)


def renamed(value: Any) -> Any:
    """Every `status` and `type` becomes a word from the future."""
    if isinstance(value, dict):
        return {key: "hibernating" if key in {"status", "type"} else renamed(of) for key, of in value.items()}
    return [renamed(of) for of in value] if isinstance(value, list) else value


async def split(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The exit marker's two lines come apart."""
    async for chunk in stream:
        head, found, tail = chunk.partition(b"event: exit\n")
        if found:
            yield head + found
            await asyncio.sleep(0.05)
            yield tail
        else:
            yield chunk


async def without_end(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Everything but the end: the client sees a stream that just stops."""
    async for chunk in stream:
        if chunk.startswith((b"event: exit\n", b"event: done\n")):
            return
        yield chunk


def shown(request: Request) -> Any:
    """The body as the log keeps it: JSON where it is some, else its size; no secret values."""
    try:
        body = json.loads(request.body) if request.body else None
    except (ValueError, RecursionError):
        return f"{len(request.body)} bytes"
    if isinstance(body, dict):
        for name in body.keys() & {"attach_headers", "env_vars", "github_token", "agent_api_key"}:
            value = body[name]
            body[name] = sorted(value) if isinstance(value, dict) else bool(value)
    return body
