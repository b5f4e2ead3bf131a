"""The network of an emulated box: policy enforced, headers attached, towards the named hosts of a test.

A box has no network but its own loopback, where an HTTP proxy answers (the box's variables name it).
What a name stands for, a test says; nothing else can be reached, so no test leaves the machine. The
service attaches headers to TLS only; here it is plain HTTP, so that a test host needs no certificate.
A tunnel (`CONNECT`) is let through or refused by the same policy, and gets no headers.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import h11

MAX_BODY = 64 << 20
MAX_RECORDED = 10_000
HOP = {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"upgrade"}


class Exchange(NamedTuple):
    """One request out of a box. `outcome`: passed, denied, unknown (no such test host) or unreachable."""

    box_id: str
    method: str
    host: str
    path: str
    outcome: str
    attached: tuple[str, ...]
    """Names of the headers that were added."""


class Sender(Protocol):
    """What a box tells its proxy."""

    id: str
    policy: dict[str, Any]
    attach_headers: dict[str, dict[str, str]]


class Egress:
    """The way out of all boxes of one emulator."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        """`hosts`: name → `127.0.0.1:PORT`."""
        self.hosts = dict(hosts)
        self.exchanges: deque[Exchange] = deque(maxlen=MAX_RECORDED)

    async def serve(self, listener: socket.socket, box: Sender) -> None:
        """Until cancelled."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await asyncio.wait_for(self._answer(reader, writer, box), 3600)
            except (OSError, h11.RemoteProtocolError, TimeoutError, asyncio.CancelledError):
                pass  # the client's own affair, or the box stops
            finally:
                writer.close()

        async with await asyncio.start_server(accept, sock=listener.dup()) as server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, box: Sender) -> None:
        http = h11.Connection(h11.SERVER)
        request, body = await one_request(http, reader)
        method = request.method.decode("latin-1")
        host, path = destination(request)
        outcome, target = self._judge(host, box)
        headers = best_match(box.attach_headers, host) if outcome == "passed" and method != "CONNECT" else {}
        self.exchanges.append(Exchange(box.id, method, host, path, outcome, tuple(headers)))
        if target is None:
            status = 403 if outcome == "denied" else 502
            await refuse(http, writer, status, f"{outcome}: {host}")
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection(*target)
        except OSError:
            await refuse(http, writer, 502, f"unreachable: {host}")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream.write(rewritten(request, path, host, headers, body))
        await both_ways(reader, writer, upstream_reader, upstream)

    def _judge(self, host: str, box: Sender) -> tuple[str, tuple[str, int] | None]:
        if not allowed(box.policy, host):
            return "denied", None
        known = self.hosts.get(host)
        if known is None:
            return "unknown", None
        address, _, port = known.rpartition(":")
        return "passed", (address, int(port))


def allowed(policy: Mapping[str, Any], host: str) -> bool:
    """What the documented policy says of a name or an address."""
    if policy.get("mode") != "custom":
        return bool(policy.get("mode", "allow-all") == "allow-all")
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if any(address in ipaddress.ip_network(cidr) for cidr in policy.get("denied_cidrs") or ()):
            return False
        return any(address in ipaddress.ip_network(cidr) for cidr in policy.get("allowed_cidrs") or ())
    domains = policy.get("allowed_domains")
    if domains is None and not policy.get("allowed_cidrs"):
        return True  # Only denials were given.
    return any(matches(pattern, host) for pattern in domains or ())


def matches(pattern: str, host: str) -> bool:
    return pattern == host or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def best_match(headers: Mapping[str, dict[str, str]], host: str) -> dict[str, str]:
    """The most specific pattern's headers."""
    found = [pattern for pattern in headers if matches(pattern, host)]
    return (
        headers[max(found, key=lambda pattern: (not pattern.startswith("*."), len(pattern)))] if found else {}
    )


def destination(request: h11.Request) -> tuple[str, str]:
    """Host without port, and path, of a proxied or a direct request."""
    target = request.target.decode("latin-1")
    if request.method == b"CONNECT":
        return target.rpartition(":")[0].lower(), ""
    parts = urlsplit(target)
    path = parts._replace(scheme="", netloc="").geturl() or "/"
    if parts.hostname:
        return parts.hostname.lower(), path
    named = dict(request.headers).get(b"host", b"").decode("latin-1")
    return named.partition(":")[0].lower(), path


def rewritten(request: h11.Request, path: str, host: str, attached: Mapping[str, str], body: bytes) -> bytes:
    """The request as it goes on: whole, one to a connection, attached headers in place of the box's."""
    replaced = {name.lower().encode("latin-1") for name in attached}
    drop = HOP | replaced | {b"transfer-encoding", b"content-length", b"host"}
    lines = [
        request.method + b" " + path.encode("latin-1") + b" HTTP/1.1",
        b"host: " + host.encode("latin-1"),
    ]
    lines += [name + b": " + value for name, value in request.headers if name not in drop]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in attached.items()]
    lines += [b"content-length: %d" % len(body), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def one_request(http: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            request = event
            if event.method == b"CONNECT":
                return event, b""
        elif isinstance(event, h11.Data) and len(body) < MAX_BODY:
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and request:
            return request, bytes(body)
        else:
            raise ConnectionAbortedError("no request")


async def refuse(http: h11.Connection, writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = text.encode("utf-8", "replace")
    headers = [("content-length", str(len(body))), ("connection", "close")]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        writer.write(http.send(event) or b"")
    await writer.drain()


async def both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    upstream_reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
) -> None:
    """Pass bytes on until the far end has said all."""
    forth = asyncio.ensure_future(copy(reader, upstream))
    try:
        await copy(upstream_reader, writer)
    finally:
        forth.cancel()
        await asyncio.gather(forth, return_exceptions=True)
        upstream.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
