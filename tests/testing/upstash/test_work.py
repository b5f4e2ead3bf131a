import asyncio
import base64
from pathlib import Path

import pytest
from tests.testing.upstash.client import Client

from ironworks.testing.upstash import Fault, UpstashEmulator

pytestmark = pytest.mark.slow


@pytest.mark.spec("SB-55")
async def test_a_command_runs_in_the_workspace_as_an_ordinary_user(client: Client) -> None:
    box = await client.create(env_vars={"MINE": "kept", "PATH": "/nowhere", "LD_PRELOAD": "/x.so"})
    data = await client.sh(box, "pwd; id -un; echo $MINE [$LD_PRELOAD]; echo aside >&2; exit 7")
    assert data == {
        "exit_code": 7,
        "output": "/workspace/home\nboxuser\nkept []\n",
        "error": "aside\n",
    }
    await client.out(box, "mkdir /workspace/home/sub && touch /workspace/home/sub/file")
    answer = await client.call("POST", f"/v2/box/{box}/exec", command=["ls"], folder="sub")
    assert answer.data["output"] == "file\n"
    assert (await client.sh(box, "mkdir /work"))["exit_code"] != 0
    assert await client.out(box, "sudo -n mkdir -p /work && touch /work/x && ls /work") == "x\n"


@pytest.mark.spec("SB-55")
async def test_what_a_command_left_behind_goes_on_until_the_box_pauses(
    client: Client, emulator: UpstashEmulator
) -> None:
    box = await client.create()
    script = "while :; do date +%s%N > tick; sleep 0.05; done"
    await client.out(box, f"setsid nohup sh -c '{script}' >/dev/null 2>&1 & sleep 0.3")
    assert await emulator.boxes()[0].processes() >= 1
    first = await client.out(box, "cat tick")
    await asyncio.sleep(0.3)
    assert await client.out(box, "cat tick") != first
    await client.call("POST", f"/v2/box/{box}/pause")
    assert await client.status(box) == "paused"
    last = await client.out(box, "cat tick")
    await asyncio.sleep(0.3)
    assert await client.out(box, "cat tick") == last


@pytest.mark.spec("SB-55")
async def test_a_command_goes_on_when_its_client_hangs_up_only_if_it_was_detached(client: Client) -> None:
    box = await client.create()
    session = await client.session(box, argv=["sh", "-c", "(setsid sleep 711 &) ; sleep 712 & echo up; wait"])
    assert (await session.receive())["type"] == "started"
    assert base64.b64decode((await session.receive())["data"]) == b"up\n"
    await session.close()
    find = 'for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done | grep -c "^sleep 71%s" || true'
    for _ in range(100):
        if await client.out(box, find % 2) == "0\n":
            break
        await asyncio.sleep(0.05)
    assert await client.out(box, find % 2) == "0\n"
    assert await client.out(box, find % 1) == "1\n"


@pytest.mark.spec("SB-55")
async def test_a_session_has_stdin_streams_signals_and_an_end(client: Client) -> None:
    box = await client.create()
    session = await client.session(box, cmd="cat; echo aside >&2; exit 9", env=["NODE_OPTIONS=x"])
    for text in (b"one\n", b"two\n"):
        await session.send(type="stdin", data=base64.b64encode(text).decode())
    await session.send(type="stdin_close")
    assert await session.rest() == ("one\ntwo\n", "aside\n", 9)
    stubborn = await client.session(
        box, argv=["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]
    )
    assert [(await stubborn.receive())["type"] for _ in range(2)] == ["started", "stdout"]
    await stubborn.send(type="terminate", graceMs=100)
    assert (await stubborn.rest())[2] == 137
    terminal = await client.session(box, cmd="tty; stty size", tty=True, rows=11, cols=77)
    out, _, code = await terminal.rest()
    assert out.split() == ["/dev/pts/0", "11", "77"] and code == 0


@pytest.mark.spec("SB-55")
async def test_files_are_those_of_the_box_and_of_its_workspace_only(client: Client, tmp_path: Path) -> None:
    box = await client.create()
    files = f"/v2/box/{box}/files"
    data = base64.b64encode(bytes(range(256))).decode()
    wrote = await client.call("POST", files + "/write", path="a/b.bin", content=data, encoding="base64")
    assert wrote.status == 200
    assert await client.out(box, "wc -c < a/b.bin") == "256\n"
    read = await client.call("GET", files + "/read?path=a/b.bin&encoding=base64&offset=1&length=3")
    assert base64.b64decode(read.data["content"]) == b"\1\2\3"
    assert (await client.call("GET", files + "/download?folder=a/b.bin")).body == bytes(range(256))
    await client.out(box, f"ln -s /etc/passwd out; ln -s {tmp_path} host; mkfifo pipe")
    for path in ("/etc/passwd", "../../etc/passwd", "out", "host/x", "/tmp/x"):
        refused = await client.call("GET", f"{files}/read?path={path}")
        assert (refused.status, refused.data) == (403, {"error": "permission_denied"}), path
    assert (await client.call("POST", files + "/write", path="host/x", content="x")).status == 403
    assert (await client.call("GET", files + "/read?path=pipe")).status == 400
    assert (await client.call("GET", files + "/read?path=none")).status == 404
    assert (await client.call("GET", files + "/stat?path=out")).data["type"] == "symlink"
    names = [entry["name"] for entry in (await client.call("GET", files + "/list")).data["files"]]
    assert names == ["a", "host", "out", "pipe"]
    assert (await client.call("POST", files + "/remove", path="a", recursive=True)).status == 200
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("SB-57")
async def test_a_stream_ends_with_a_marker_that_can_be_split_cut_or_forged(
    client: Client, emulator: UpstashEmulator
) -> None:
    box = await client.create()
    path = f"/v2/box/{box}/exec-stream"
    whole = (await client.call("POST", path, command=["sh", "-c", "echo hi; exit 3"])).body
    assert whole.startswith(b'hi\nevent: exit\ndata: {"exit_code": 3') and whole.endswith(b"\n\n")
    emulator.spoil(Fault(kind="cut", path="exec-stream"))
    assert (await client.call("POST", path, command=["sh", "-c", "echo hi; exit 3"])).body == b"hi\n"
    emulator.spoil(Fault(kind="split_exit", path="exec-stream"))
    assert await marker_chunk(client, path) == b"event: exit\n"
    assert (await marker_chunk(client, path)).startswith(b"event: exit\ndata: {")


async def marker_chunk(client: Client, path: str) -> bytes:
    """The network chunk that begins the exit marker of a command without output."""
    reader, writer = await asyncio.open_connection(*client.place)
    body = b'{"command": ["sh", "-c", "exit 3"]}'
    key = f"X-Box-Api-Key: {client.key}"
    head = f"POST {path} HTTP/1.1\r\nHost: box\r\n{key}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.readuntil(b"\r\n\r\n")
    size = int(await reader.readline(), 16)
    chunk = await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()
    return chunk


@pytest.mark.spec("SB-57")
async def test_a_session_that_is_cut_has_no_exit(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create()
    emulator.spoil(Fault(kind="cut", method="WS", path="exec-session"))
    session = await client.session(box, argv=["sh", "-c", "echo hi; sleep 713"])
    assert (await session.rest())[2] is None
    assert "sleep 713" not in await client.out(box, 'cat /proc/[0-9]*/cmdline | tr "\\0" " "')
