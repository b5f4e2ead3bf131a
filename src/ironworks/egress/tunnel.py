"""A blind tunnel to an allowed host, opened only for TLS that asks for that very host.

Asked for by CONNECT; or caught, and then the greeting alone says where it wants to go."""

import asyncio
from collections.abc import Callable

from ironworks.egress.allowlist import Destination
from ironworks.egress.client import Reply
from ironworks.egress.refusal import Refusal, denial
from ironworks.egress.upstream import Streams, dial

HELLO_BYTES = 64 << 10
HELLO_S = 15.0
IDLE_S = 900.0
_READ = 1 << 16
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


async def tunnel(to: Destination, reply: Reply, *, on_traffic: Callable[[], None]) -> None:
    """Dial, accept the CONNECT, look at the TLS greeting, then pass bytes both ways until a side is silent.

    Refusal before the CONNECT has been accepted, and after: then it is only heard as a closed connection.
    """
    far = await dial(to, tls=False)
    try:
        early, reader, writer = await reply.switch()
        far[1].write(await _greeting(early, reader, to.host))
        await _splice((reader, writer), far, on_traffic)
    finally:
        far[1].transport.abort()


async def pass_on(greeting: bytes, near: Streams, to: Destination, *, on_traffic: Callable[[], None]) -> None:
    """Carry on a connection whose client has greeted already. Refusal is only heard as its end."""
    far = await dial(to, tls=False)
    try:
        far[1].write(greeting)
        await _splice(near, far, on_traffic)
    finally:
        far[1].transport.abort()


async def _greeting(data: bytes, reader: asyncio.StreamReader, host: str) -> bytes:
    """The client's first bytes, once they are a whole TLS ClientHello for `host`."""
    data, name = await hello(data, reader)
    if name is None or name.lower().removesuffix(".") != host:
        raise denial(
            "wrong-server-name", f"the TLS greeting asks for {(name or 'no name')[:80]!r}, not {host}"
        )
    return data


async def hello(data: bytes, reader: asyncio.StreamReader) -> tuple[bytes, str | None]:
    """The client's first bytes, and the server name in them: see `server_name`."""
    try:
        async with asyncio.timeout(HELLO_S):
            while (name := server_name(data)) is None and len(data) < HELLO_BYTES:
                more = await reader.read(_READ)
                if not more:
                    break
                data += more
    except TimeoutError:
        raise Refusal(408, "too-slow", "no TLS greeting in the tunnel") from None
    return data, name


def server_name(data: bytes) -> str | None:
    """The host a ClientHello asks for: None as long as it is incomplete, empty when there is none to be had
    (no TLS, no such extension, or an encrypted one)."""
    message = b""
    while data:
        if data[0] != 22:
            return ""
        if len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5]):
            break
        end = 5 + int.from_bytes(data[3:5])
        message, data = message + data[5:end], data[end:]
    if len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        return None
    try:
        return _name_in(message)
    except (IndexError, UnicodeDecodeError):
        return ""


def _name_in(message: bytes) -> str:
    if message[0] != 1:
        return ""
    position = 4 + 2 + 32
    for width in (1, 2, 1):  # session, cipher suites, compression methods
        position += width + int.from_bytes(message[position : position + width])
    position += 2
    name = ""
    while position + 4 <= len(message):
        kind = int.from_bytes(message[position : position + 2])
        size = int.from_bytes(message[position + 2 : position + 4])
        body = message[position + 4 : position + 4 + size]
        position += 4 + size
        if kind == _ENCRYPTED_HELLO:
            return ""
        if kind == _SERVER_NAME and body[2] == 0:
            name = body[5 : 5 + int.from_bytes(body[3:5])].decode("ascii")
    return name


async def _splice(near: Streams, far: Streams, on_traffic: Callable[[], None]) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ):
            deadline.reschedule(asyncio.get_running_loop().time() + IDLE_S)
            on_traffic()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    try:
        async with asyncio.timeout(IDLE_S) as deadline, asyncio.TaskGroup() as both:
            both.create_task(carry(near[0], far[1]))
            both.create_task(carry(far[0], near[1]))
    except* OSError:
        pass
