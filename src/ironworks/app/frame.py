"""How a keeper and its callers talk: over a Unix socket, in frames of a kind and at most 64 KiB of data.

A request is a `request` frame, JSON, then `data` frames up to an empty one. The answer is any number of
`stdout` and `stderr` frames, then one `result` or `error`, JSON.
"""

import json
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from typing import Any, Literal

from ironworks.core.errors import SandboxError

Kind = Literal["request", "data", "stdout", "stderr", "result", "error"]
KINDS: tuple[Kind, ...] = ("request", "data", "stdout", "stderr", "result", "error")
HEAD = struct.Struct(">BI")
MOST_BYTES = 1 << 16


def frames(kind: Kind, data: bytes) -> Iterator[bytes]:
    """`data` in as many frames as it takes; one, empty, for none."""
    number = KINDS.index(kind)
    for start in range(0, max(len(data), 1), MOST_BYTES):
        part = data[start : start + MOST_BYTES]
        yield HEAD.pack(number, len(part)) + part


def json_frame(kind: Kind, value: Any) -> bytes:
    """One frame; SandboxError when it does not fit."""
    data = json.dumps(value).encode()
    if len(data) > MOST_BYTES:
        raise SandboxError(f"a message of {len(data)} bytes is too long")
    return b"".join(frames(kind, data))


def head(data: bytes) -> tuple[Kind, int]:
    """Kind and length of the frame that begins so; SandboxError for nonsense."""
    number, length = HEAD.unpack(data)
    if number >= len(KINDS) or length > MOST_BYTES:
        raise SandboxError("a message that no keeper and no caller of one sends")
    return KINDS[number], length


async def read(reader: StreamReader) -> tuple[Kind, bytes]:
    """The next frame. IncompleteReadError when the other side is gone."""
    kind, length = head(await reader.readexactly(HEAD.size))
    return kind, await reader.readexactly(length)


def receive(connection: socket.socket) -> tuple[Kind, bytes]:
    """The same, blocking. SandboxError when the other side is gone."""
    kind, length = head(_exactly(connection, HEAD.size))
    return kind, _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise SandboxError("the sandbox's keeper has ended", hint="its disk is whole: call again")
        data += part
    return bytes(data)


def send(writer: StreamWriter, kind: Kind, data: bytes) -> None:
    for frame in frames(kind, data):
        writer.write(frame)
