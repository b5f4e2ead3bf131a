"""One sandbox's listener being served: whoever connects to it is that sandbox, with what its grant says."""

import asyncio
import hashlib
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from urllib.parse import unquote

from ironworks.core.clock import Clock
from ironworks.core.events import EgressDenied, Event
from ironworks.core.ports import GATEWAY_PORT, Ways
from ironworks.egress import header, name_server
from ironworks.egress.allowlist import AllowList
from ironworks.egress.budget import Budget
from ironworks.egress.call import Call
from ironworks.egress.client import Client, Gone, Limits, Reply, Request, Room
from ironworks.egress.forward import Forwarder
from ironworks.egress.grant import Grant, Tools
from ironworks.egress.host import authority, host_name
from ironworks.egress.provider import Provider
from ironworks.egress.refusal import Refusal, denial
from ironworks.egress.tally import Tally
from ironworks.egress.tunnel import hello, pass_on, tunnel
from ironworks.egress.upstream import Streams

CONNECTIONS = 64
DENIALS = 200
"""Distinct denials of one attachment that are recorded: a sandbox must not be able to fill the event log."""
_VERB = re.compile(r"[a-z]{1,40}")
_JSON = (b"content-type", b"application/json")


class Attachment:
    """Made by `Gateway.attach`. Serves until closed; the listener stays open and the caller's."""

    def __init__(
        self,
        listener: socket.socket,
        grant: Grant,
        *,
        providers: Mapping[str, Provider],
        allowed: AllowList,
        forwarder: Forwarder,
        budget: Budget,
        tools: Tools | None,
        ways: Ways | None,
        clock: Clock,
        limits: Limits,
        on_event: Callable[[Event, str], None],
    ) -> None:
        self.env = environment(providers if grant.models else {})
        self._grant = grant
        self._providers = providers
        self._allowed = allowed
        self._forwarder = forwarder
        self._budget = budget
        self._tools = tools
        self._clock = clock
        self._limits = limits
        self._room = Room()
        self._on_event = on_event
        self._tally = Tally()
        self._last_traffic_s = clock.monotonic_s()
        self._denied: set[str] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._serving: list[asyncio.Task[None]] = []
        self._start(listener, lambda own: self._accept(own, self._serve))
        if ways is not None:
            self._start(ways.http, lambda own: self._accept(own, self._serve_caught))
            self._start(ways.tls, lambda own: self._accept(own, self._pass_on_caught))
            self._start(ways.names, name_server.serve)

    @property
    def spent_usd(self) -> float:
        """US dollars charged through this attachment."""
        return self._tally.spent_usd

    @property
    def requests(self) -> int:
        """Model calls sent."""
        return self._tally.requests

    @property
    def over_budget(self) -> bool:
        """A model call was refused because a cap is reached."""
        return self._tally.over_budget

    @property
    def provider_failure(self) -> str | None:
        """`401`, `429 until <time>`, or why the provider is out of reach; None once it has answered well."""
        return self._tally.provider_failure

    @property
    def last_traffic_s(self) -> float:
        """The clock's monotonic seconds at the last byte either way."""
        return self._last_traffic_s

    async def close(self) -> None:
        """Stop serving. What is under way is cut off, and what it had reserved is charged. Idempotent."""
        tasks = [*self._serving, *self._clients]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for own in self._sockets:
            own.close()

    def _start(
        self, given: socket.socket, work: Callable[[socket.socket], Coroutine[object, object, None]]
    ) -> None:
        given.setblocking(False)
        # A duplicate, so that ending this attachment leaves the sandbox its sockets.
        self._sockets.append(own := given.dup())
        self._serving.append(asyncio.create_task(work(own)))

    async def _accept(self, listener: socket.socket, serve: Callable[[Streams], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(CONNECTIONS)
        while True:
            await room.acquire()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # The peer is gone already, or the host is out of descriptors for now.
                room.release()
                await asyncio.sleep(0.05)
                continue
            task = asyncio.create_task(self._open(connection, serve))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)
            task.add_done_callback(lambda _: room.release())

    async def _open(self, connection: socket.socket, serve: Callable[[Streams], Awaitable[None]]) -> None:
        try:
            # asyncio does it only for sockets that know their protocol; without it answers take 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            streams = await asyncio.open_connection(sock=connection)
        except OSError:
            connection.close()
            return
        await serve(streams)

    async def _serve(self, streams: Streams) -> None:
        await self._client(streams).serve(self._handle)

    async def _serve_caught(self, streams: Streams) -> None:
        """HTTP that thinks it has reached its server: the gateway's own routes are not here."""

        async def handle(request: Request, reply: Reply) -> None:
            host = header.value_of(request.headers, b"host")
            if request.method == "CONNECT" or not request.target.startswith("/"):
                raise Refusal(400, "bad-request", "this is no proxy; the gateway's port is")
            await self._handle(replace(request, target=f"http://{host}{request.target}"), reply)

        await self._client(streams).serve(handle)

    async def _pass_on_caught(self, streams: Streams) -> None:
        """TLS that thinks it has reached its server."""
        name: str | None = None
        try:
            greeting, name = await hello(b"", streams[0])
            if not name:
                raise denial("no-server-name", "what does not greet as TLS, or names no server, goes nowhere")
            to = await self._allowed.destination("tls", host_name(name), 443)
            await pass_on(greeting, streams, to, on_traffic=self._traffic)
        except Refusal as refusal:
            if refusal.denied:
                await self._record(f"TLS {(name or 'without a name')[:200]}", refusal)
        except OSError:
            pass
        finally:
            streams[1].transport.abort()

    def _client(self, streams: Streams) -> Client:
        return Client(*streams, self._limits, self._room, on_traffic=self._traffic)

    def _traffic(self) -> None:
        self._last_traffic_s = self._clock.monotonic_s()

    async def _handle(self, request: Request, reply: Reply) -> None:
        try:
            await self._route(request, reply)
        except Refusal as refusal:
            await self._refuse(request, reply, refusal)
        except (Gone, OSError):
            raise
        except Exception:
            # The boundary of one request: a fault of ours or a full disk must not end the other sandboxes'.
            logging.getLogger(__name__).exception("a request failed in the gateway")
            await self._refuse(
                request, reply, Refusal(500, "internal", "the gateway failed; its log says why")
            )

    async def _route(self, request: Request, reply: Reply) -> None:
        target = request.target
        if request.method == "CONNECT":
            host, port = authority(target, None)
            await tunnel(await self._allowed.destination("tls", host, port), reply, on_traffic=self._traffic)
            return
        if request.method == "TRACE":
            raise Refusal(405, "method", "TRACE is not passed on")
        if not target.startswith("/"):
            await self._forwarder.absolute(self._allowed, request, reply)
            return
        path, _, query = target.partition("?")
        check_path(path)
        name, _, rest = path[1:].partition("/")
        if name == "tools":
            await self._tool(rest, request, reply)
        elif name == "host":
            await self._forwarder.https(self._allowed, rest, query, request, reply)
        elif name in self._providers:
            call = Call(self._providers[name], self._budget, self._grant, self._tally, request, reply)
            await call.serve(f"/{rest}", query)
        else:
            raise Refusal(404, "no-route", f"the gateway has no route /{name[:100]}")

    async def _tool(self, verb: str, request: Request, reply: Reply) -> None:
        if self._tools is None or not _VERB.fullmatch(verb):
            raise Refusal(404, "no-tool", "there is no such tool here")
        if request.method != "POST":
            raise Refusal(405, "method", "tools are called with POST")
        status, body = await self._tools(verb, request.body)
        kind = _JSON if body[:1] in {b"{", b"["} else (b"content-type", b"text/plain; charset=utf-8")
        await reply.send(status, [kind], body)

    async def _refuse(self, request: Request, reply: Reply, refusal: Refusal) -> None:
        if refusal.denied:
            await self._record(f"{request.method} {_place(request.target)}", refusal)
        if reply.started:
            # An answer cut short is the only way left to say that it is not whole.
            raise Gone from refusal
        provider = self._providers.get(request.target.partition("?")[0][1:].partition("/")[0])
        if provider is not None and request.target.startswith("/"):
            status, body = provider.refusal(refusal)
        else:
            status = refusal.status
            body = json.dumps({"error": refusal.reason, "message": str(refusal)}).encode()
        final = [(b"x-should-retry", b"false")] if status < 500 else []
        await reply.send(status, [_JSON, (b"x-ironworks-refusal", refusal.reason.encode()), *final], body)

    async def _record(self, target: str, refusal: Refusal) -> None:
        digest = hashlib.sha256(f"{target} {refusal.reason}".encode()).hexdigest()[:16]
        if digest in self._denied or len(self._denied) >= DENIALS:
            return
        self._denied.add(digest)
        grant = self._grant
        event = EgressDenied(run=grant.run, issue=grant.issue, target=target, reason=refusal.reason)
        await self._budget.run(self._on_event, event, f"denied/{grant.key}/{digest}")


def _place(target: str) -> str:
    """What of a target is written down: queries, and paths on other hosts, may hold somebody's secret."""
    scheme, found, rest = target.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest)[0]}"[:200] if found else target.partition("?")[0][:200]


def check_path(path: str) -> None:
    """Refuse a path that some server might read as another one."""
    plain = unquote(unquote(path)).replace("\\", "/")
    segments = [segment.partition(";")[0] for segment in plain.split("/")]
    if any(segment in {".", ".."} for segment in segments) or any(
        ord(mark) < 32 or mark == "#" for mark in plain
    ):
        raise Refusal(400, "bad-path", "a path with dot segments or control characters is not passed on")


def environment(providers: Mapping[str, Provider]) -> dict[str, str]:
    """What makes ordinary clients inside the sandbox use the gateway, with dummy keys only."""
    base = f"http://127.0.0.1:{GATEWAY_PORT}"
    env = {"IW_URL": f"{base}/tools"}
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        env[name] = env[name.lower()] = base
    env["NO_PROXY"] = env["no_proxy"] = "127.0.0.1,localhost,::1"
    for name, provider in providers.items():
        env[f"IRONWORKS_PROVIDER_{name.upper().replace('-', '_')}_URL"] = f"{base}/{name}"
        for variable, value in provider.dialect.env(f"{base}/{name}").items():
            env.setdefault(variable, value)
    return env
