"""A tunnel is opened for one host, and carries nothing but TLS to that host."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.egress.conftest import Box, OpenBox, grant

from ironworks.egress.tunnel import server_name


def hello(name: str | None) -> bytes:
    """A real ClientHello."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Sends back what comes, until the other side has finished."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def connect(box: Box, target: str) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n".encode())
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20), reader, writer


@pytest.mark.spec("EG-16")
async def test_tls_for_the_host_passes_both_ways(open_box: OpenBox) -> None:
    async with echo() as port, open_box(grant=grant(allow=(f"up.example:{port}=127.0.0.1",))) as box:
        head, reader, writer = await connect(box, f"UP.example.:{port}")
        assert head.startswith(b"HTTP/1.1 200")
        greeting = hello("up.example")
        for start in range(0, len(greeting), 100):
            writer.write(greeting[start : start + 100])
            await asyncio.sleep(0)
        assert await asyncio.wait_for(reader.readexactly(len(greeting)), 20) == greeting
        bulk = bytes(1 << 20)
        writer.write(bulk)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 20) == bulk
        writer.close()


@pytest.mark.spec("EG-16")
@pytest.mark.parametrize(
    "greeting",
    [
        hello("other.example"),
        hello(None),
        b"GET / HTTP/1.1\r\nHost: up.example\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03",
    ],
    ids=["other name", "no name", "plain http", "ssh", "half"],
)
async def test_anything_else_is_cut_off_unseen(open_box: OpenBox, greeting: bytes) -> None:
    async with echo() as port, open_box(grant=grant(allow=(f"up.example:{port}=127.0.0.1",))) as box:
        _, reader, writer = await connect(box, f"up.example:{port}")
        writer.write(greeting)
        writer.write_eof()
        try:
            echoed = await asyncio.wait_for(reader.read(-1), 20)
        except ConnectionError:
            echoed = b""
        assert echoed == b""
        assert [event.model_dump()["reason"] for event in box.events_of("EgressDenied")] == [
            "wrong-server-name"
        ]
        writer.close()


@pytest.mark.spec("EG-13")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("evil.example:443", "not-allowed"),
        ("up.example:22", "not-allowed"),
        ("below.up.example:443", "not-allowed"),
        ("127.0.0.1:443", "address"),
        ("2130706433:443", "address"),
        ("user@up.example:443", "bad-host"),
        ("up.example", "bad-port"),
        ("rebind.example:443", "not-public"),
    ],
)
async def test_a_connect_that_policy_forbids_is_a_403_with_a_reason_and_an_event(
    open_box: OpenBox, target: str, reason: str
) -> None:
    rules = grant(allow=("up.example", "rebind.example"))
    async with open_box(grant=rules, names={"rebind.example": ["1.1.1.1", "127.0.0.2"]}) as box:
        for _ in range(3):
            head, reader, writer = await connect(box, target)
            assert head.startswith(b"HTTP/1.1 403")
            assert reason.encode() in await reader.readuntil(b"}")
            writer.close()
        [event] = box.events_of("EgressDenied")
        assert event.model_dump()["reason"] == reason
        assert event.model_dump()["target"] == f"CONNECT {target}"


async def test_a_host_that_does_not_answer_is_a_502(open_box: OpenBox) -> None:
    async with open_box(grant=grant(allow=("up.example:9=127.0.0.1",))) as box:
        head, _, writer = await connect(box, "up.example:9")
        assert head.startswith(b"HTTP/1.1 502")
        assert box.events == []
        writer.close()


def test_the_name_is_found_in_a_real_greeting_however_it_is_framed() -> None:
    greeting = hello("up.example")
    assert server_name(greeting) == "up.example"
    assert server_name(greeting[:-1]) is None
    body = greeting[5:]
    split = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (body[:50], body[50:90], body[90:])
    )
    assert server_name(split) == "up.example"


@given(data=st.binary(max_size=300), place=st.integers(0, 200), junk=st.binary(min_size=1, max_size=4))
def test_no_bytes_are_strange_enough_to_raise(data: bytes, place: int, junk: bytes) -> None:
    greeting = HELLO[:place] + junk + HELLO[place + len(junk) :]
    for bytes_ in (data, b"\x16\x03\x01" + len(data).to_bytes(2) + data, greeting):
        assert isinstance(server_name(bytes_), str | None)


HELLO = hello("up.example")
