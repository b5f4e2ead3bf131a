"""Programs that think they have reached their server: the same policy, by the name they give."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from tests.egress.conftest import Box, OpenBox, grant, listener
from tests.egress.stub import Seen, ask, stub
from tests.egress.test_tunnel import hello

from ironworks.core.ports import Ways


@pytest.fixture
def ways() -> Iterator[Ways]:
    with listener() as http, listener() as tls, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.bind(("127.0.0.1", 0))
        yield Ways(http, tls, names)


LEAVING = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


async def greet(request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


async def answered(way: socket.socket, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*way.getsockname())
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def denied(box: Box) -> list[str]:
    return [event.model_dump()["target"] for event in box.events_of("EgressDenied")]


@pytest.mark.spec("SB-39")
async def test_http_goes_to_the_host_it_names(open_box: OpenBox, ways: Ways) -> None:
    async with (
        stub(greet) as web,
        open_box(grant=grant(allow=(f"web.example:{web.port}=127.0.0.1",)), ways=ways) as box,
    ):
        port = int(ways.http.getsockname()[1])
        for host, status in ((f"web.example:{web.port}", 200), ("web.example", 403), ("other.example", 403)):
            reply = await asyncio.to_thread(ask, port, "GET", "/path?q=1", headers={"Host": host})
            assert reply.status == status
        assert [(one.target, one.header("host")) for one in web.seen] == [
            ("/path?q=1", f"web.example:{web.port}")
        ]
        assert denied(box) == ["GET http://web.example", "GET http://other.example"]


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n",
        b"GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: web.example\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: web.example\r\nHost: other.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: web.example@other.example\r\n\r\n",
        b"POST /tools/ask HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nContent-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x00\x05hello",
    ],
)
async def test_neither_a_proxy_nor_the_gateways_own_routes_are_there(
    open_box: OpenBox, ways: Ways, head: bytes
) -> None:
    called = []

    async def tools(verb: str, body: bytes) -> tuple[int, bytes]:
        called.append(verb)
        return 200, b"{}"

    async with open_box(grant=grant(allow=("web.example=127.0.0.1",)), ways=ways, tools=tools):
        said = await answered(ways.http, head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        assert said[:10] in {b"HTTP/1.1 4", b""}
        assert called == []


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize(
    ("greeting", "target"),
    [
        (hello("other.example"), "TLS other.example"),
        (hello(None), "TLS without a name"),
        (hello("web.example.evil.example"), "TLS web.example.evil.example"),
        (b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", "TLS without a name"),
        (b"SSH-2.0-x\r\n", "TLS without a name"),
    ],
)
async def test_tls_that_names_no_allowed_host_is_closed_and_recorded(
    open_box: OpenBox, ways: Ways, greeting: bytes, target: str
) -> None:
    async with open_box(grant=grant(allow=("web.example=127.0.0.1",)), ways=ways) as box:
        assert await answered(ways.tls, greeting) == b""
        assert denied(box) == [target]


@pytest.mark.spec("SB-39")
async def test_the_ways_end_with_the_attachment_and_stay_the_callers(open_box: OpenBox, ways: Ways) -> None:
    async with open_box(ways=ways) as box:
        await box.attachment.close()
        waiting = asyncio.create_task(answered(ways.http, LEAVING))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        again = box.gateway.attach(box.listener, grant(key="again"), ways=ways)
        assert (await waiting).startswith(b"HTTP/1.1 403")
        await again.close()
