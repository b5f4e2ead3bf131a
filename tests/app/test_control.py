import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from ironworks.app.control import LINE_BYTES, control_server, send
from ironworks.core.errors import UsageError


class Listener:
    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    async def __call__(self, verb: str, message: dict[str, Any]) -> dict[str, Any] | None:
        self.heard.append(message)
        return {"run": "r1"} if verb == "look" else None


@pytest.mark.spec("CLI-9")
async def test_a_message_reaches_the_factory_and_its_answer_comes_back(tmp_path: Path) -> None:
    listener = Listener()
    async with control_server(tmp_path / "control.sock", listener):
        answer = await asyncio.to_thread(send, tmp_path / "control.sock", "look")
        await asyncio.to_thread(send, tmp_path / "control.sock", "stop", now=True)
    assert answer == {"ok": True, "run": "r1"}
    assert listener.heard == [{"verb": "look"}, {"verb": "stop", "now": True}]


async def test_a_path_longer_than_the_kernel_takes_works_too(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["long" * 20] * 4)
    folder.mkdir(parents=True)
    async with control_server(folder / "control.sock", Listener()):
        assert await asyncio.to_thread(send, folder / "control.sock", "look") == {"ok": True, "run": "r1"}
    assert not (folder / "control.sock").exists()


async def test_nobody_listening_is_an_answer(tmp_path: Path) -> None:
    assert send(tmp_path / "none.sock", "look") is None
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "dead.sock"))
    listener.close()
    assert send(tmp_path / "dead.sock", "look") is None


async def test_a_socket_that_a_crash_left_is_replaced_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.close()
    async with control_server(path, Listener()):
        assert path.stat().st_mode & 0o077 == 0
        assert await asyncio.to_thread(send, path, "look") is not None


@pytest.mark.parametrize(
    "line", [b"\n", b"\xff\n", b"[]\n", b'{"verb": "reboot"}\n', b'{"verb": 3}\n', b"[" * 60000 + b"\n"]
)
async def test_a_message_that_makes_no_sense_is_refused_and_the_server_lives(
    tmp_path: Path, line: bytes
) -> None:
    listener = Listener()
    async with control_server(tmp_path / "s", listener):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(line)
        assert json.loads(await reader.readline())["ok"] is False
        writer.close()
        assert await asyncio.to_thread(send, tmp_path / "s", "look") is not None
    assert len(listener.heard) == 1


async def test_a_line_without_end_is_dropped_and_the_server_lives(tmp_path: Path) -> None:
    async with control_server(tmp_path / "s", Listener()):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(b"x" * (LINE_BYTES * 3))
        assert await reader.read() == b""
        writer.close()
        assert await asyncio.to_thread(send, tmp_path / "s", "look") is not None


async def test_a_refusal_is_said(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"ok": false, "error": "no"}\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
    async with server:
        with pytest.raises(UsageError, match="no"):
            await asyncio.to_thread(send, tmp_path / "s", "look")
