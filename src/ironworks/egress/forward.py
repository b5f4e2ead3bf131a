"""Requests to hosts that are not providers: plain `http://` proxying, and `/host/<host>/...` over https."""

from collections.abc import Callable, Mapping

from ironworks.core.errors import ConfigError
from ironworks.core.settings import Secret
from ironworks.egress import header
from ironworks.egress.allowlist import AllowList, Destination
from ironworks.egress.client import Reply, Request
from ironworks.egress.host import authority
from ironworks.egress.refusal import Refusal
from ironworks.egress.scrub import Scrubber
from ironworks.egress.upstream import Outgoing, dial, exchange

Secrets = Callable[[str], str]
"""`env:NAME` or `file:PATH` to the secret itself; ConfigError when there is none."""


class Attached:
    """`[network.headers]` resolved: what is added for which host and port. A bare host means port 443:
    nothing goes out in the clear that was not written with its port."""

    def __init__(self, headers: Mapping[str, Mapping[str, Secret]], secrets: Secrets) -> None:
        self._fields: dict[tuple[str, int], dict[str, str]] = {}
        for where, fields in headers.items():
            try:
                place = authority(where, 443)
            except Refusal as error:
                raise ConfigError(f'[network.headers."{where}"]: {error}') from None
            self._fields[place] = {name: secrets(source) for name, source in fields.items()}

    def of(self, to: Destination) -> dict[str, str]:
        return self._fields.get((to.host, to.port), {})


class Forwarder:
    """Passes one request on to where the allow-list lets it go. Redirects come back, not followed."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached

    async def absolute(self, allowed: AllowList, request: Request, reply: Reply) -> None:
        """`GET http://host[:port]/path`. Raises Refusal."""
        scheme, _, rest = request.target.partition("://")
        if scheme.lower() != "http":
            raise Refusal(400, "bad-scheme", "only http:// can be proxied so; use CONNECT for https")
        end = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
        host, port = authority(rest[:end], 80)
        path = rest[end:]
        target = path if path.startswith("/") else f"/{path}"
        await self._pass(await allowed.destination("http", host, port), target, request, reply)

    async def https(self, allowed: AllowList, path: str, query: str, request: Request, reply: Reply) -> None:
        """`/host/<host>[:port]/path`; `path` begins after `/host/`. Raises Refusal."""
        where, _, rest = path.partition("/")
        host, port = authority(where, 443)
        to = await allowed.destination("https", host, port)
        await self._pass(to, f"/{rest}" + (f"?{query}" if query else ""), request, reply)

    async def _pass(self, to: Destination, target: str, request: Request, reply: Reply) -> None:
        attached = self._attached.of(to)
        if attached:
            path, _, query = target.partition("?")
            query = header.without_keys(query)
            target = f"{path}?{query}" if query else path
        fields = header.onward(request.headers, attached=attached, guarded=bool(attached))
        if attached:
            fields.append((b"accept-encoding", b"identity"))
        fields += [(name.encode(), value.encode()) for name, value in attached.items()]
        scrubber = Scrubber(attached.values())
        streams = await dial(to, tls=to.scheme == "https")
        async with exchange(streams, to, Outgoing(request.method, target, fields, request.body)) as answer:
            if attached and header.value_of(answer.headers, b"content-encoding") not in {"", "identity"}:
                raise Refusal(502, "encoded", f"{to.host} compressed its answer although it was asked not to")
            kept = header.back(answer.headers, guarded=bool(attached))
            await reply.start(answer.status, [(name, scrubber.whole(value)) for name, value in kept])
            async for chunk in answer.chunks():
                await reply.write(scrubber.feed(chunk))
            await reply.write(scrubber.rest())
            await reply.end()
