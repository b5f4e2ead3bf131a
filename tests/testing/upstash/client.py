"""A plain client for the emulator that shares no code with it."""

import asyncio
import base64
import contextlib
import http.client
import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from ironworks.testing.upstash.emulator import KEY

TIMEOUT_S = 60.0


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Client:
    """One API key at one emulator."""

    def __init__(self, base_url: str, key: str = KEY) -> None:
        self._address = urlsplit(base_url).netloc
        self.key = key

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self._address.partition(":")
        return host, int(port)

    async def call(self, method: str, path: str, /, **fields: object) -> Answer:
        body = json.dumps(fields).encode() if fields else None
        return await asyncio.to_thread(self.call_now, method, path, body)

    def call_now(self, method: str, path: str, body: bytes | None) -> Answer:
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {"X-Box-Api-Key": self.key})
            response = connection.getresponse()
            return Answer(response.status, response.read(), dict(response.getheaders()))
        finally:
            connection.close()

    async def create(self, **fields: object) -> str:
        """The id of a new box."""
        answer = await self.call("POST", "/v2/box", **{"runtime": "python", **fields})
        assert answer.status == 201, answer.body
        return str(answer.data["id"])

    async def sh(self, box: str, script: str) -> Any:
        """The answer to one command."""
        answer = await self.call("POST", f"/v2/box/{box}/exec", command=["sh", "-c", script])
        assert answer.status == 200, answer.body
        return answer.data

    async def out(self, box: str, script: str) -> str:
        """What a command prints that succeeds."""
        data = await self.sh(box, script)
        assert data["exit_code"] == 0, data
        return str(data["output"])

    async def status(self, box: str) -> str:
        return str((await self.call("GET", f"/v2/box/{box}/status")).data["status"])

    async def session(self, box: str, **start: object) -> "Session":
        return await Session.open(self, box, start)


class Session:
    """The client's side of a framed session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, client: Client, box: str, start: dict[str, object]) -> Self:
        reader, writer = await asyncio.open_connection(*client.place)
        nonce = base64.b64encode(os.urandom(16)).decode()
        head = (
            f"GET /v2/box/{box}/exec-session HTTP/1.1\r\nHost: box\r\nX-Box-Api-Key: {client.key}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {nonce}\r\n\r\n"
        )
        writer.write(head.encode())
        assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        session = cls(reader, writer)
        await session.send(type="start", **start)
        return session

    async def send(self, **frame: object) -> None:
        data, mask = json.dumps(frame).encode(), os.urandom(4)
        size = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self._writer.write(b"\x81" + size + mask + masked)
        await self._writer.drain()

    async def receive(self) -> dict[str, Any]:
        """The next frame; empty when the connection was closed or broken."""
        try:
            first, size = await asyncio.wait_for(self._reader.readexactly(2), TIMEOUT_S)
            if size == 126:
                size = struct.unpack(">H", await self._reader.readexactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", await self._reader.readexactly(8))[0]
            data = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return {}
        return dict(json.loads(data)) if first & 15 == 1 else {}

    async def rest(self) -> tuple[str, str, int | None]:
        """All that comes until the end: stdout, stderr, and the exit code if there is one."""
        said = {"stdout": b"", "stderr": b""}
        code = None
        while code is None and (frame := await self.receive()):
            if frame["type"] == "exit":
                code = int(frame["code"])
            if frame["type"] in said:
                said[frame["type"]] += base64.b64decode(frame["data"])
        await self.close()
        return said["stdout"].decode(), said["stderr"].decode(), code

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def running(command: bytes) -> bool:
    """Whether any process of the host runs it."""
    return any(command in read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
