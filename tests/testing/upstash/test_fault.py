import asyncio
import http.client
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.testing.upstash.client import Client, running

from ironworks.testing.upstash import Fault, UpstashEmulator

pytestmark = pytest.mark.slow


@pytest.mark.spec("SB-57")
async def test_an_answer_is_spoiled_as_often_as_asked(client: Client, emulator: UpstashEmulator) -> None:
    emulator.spoil(Fault(kind="status", status=429, headers={"Retry-After": "7"}, times=2, path="^/v2/box$"))
    for _ in range(2):
        answer = await client.call("GET", "/v2/box")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        assert answer.data == {"error": "injected"}
    assert (await client.call("GET", "/v2/box")).data == []
    emulator.spoil(Fault(kind="html"))
    page = await client.call("GET", "/v2/box")
    assert page.status == 502 and page.body.startswith(b"<html>")
    emulator.spoil(Fault(kind="not_json", method="POST"))
    assert (await client.call("GET", "/v2/box")).data == []
    with pytest.raises(ValueError):
        json.loads((await client.call("POST", "/v2/box", runtime="node")).body)
    assert emulator.boxes() == []


@pytest.mark.spec("SB-57")
async def test_what_was_asked_can_be_done_before_the_answer_is_lost(
    client: Client, emulator: UpstashEmulator
) -> None:
    emulator.spoil(Fault(kind="reset", method="POST", path="^/v2/box$", after=True))
    with pytest.raises((OSError, http.client.HTTPException)):
        await client.call("POST", "/v2/box", name="left-over")
    emulator.spoil(Fault(kind="status", status=500, method="POST", path="^/v2/box$", after=True))
    assert (await client.call("POST", "/v2/box", name="second")).status == 500
    assert [box["name"] for box in (await client.call("GET", "/v2/box")).data] == ["left-over", "second"]
    emulator.spoil(Fault(kind="reset", method="POST", path="^/v2/box$"))
    with pytest.raises((OSError, http.client.HTTPException)):
        await client.call("POST", "/v2/box", name="third")
    assert len(emulator.boxes()) == 2
    assert [seen.fault for seen in emulator.select("POST", "/v2/box")] == ["reset", "status", "reset"]


@pytest.mark.spec("SB-57")
async def test_a_stall_lasts_until_the_client_gives_up(client: Client, emulator: UpstashEmulator) -> None:
    emulator.spoil(Fault(kind="stall", path="^/v2/box$"))
    reader, writer = await asyncio.open_connection(*client.place)
    writer.write(f"GET /v2/box HTTP/1.1\r\nHost: box\r\nX-Box-Api-Key: {client.key}\r\n\r\n".encode())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.3)
    assert emulator.select("GET", "/v2/box") == []
    writer.close()
    await writer.wait_closed()
    assert (await client.call("GET", "/v2/box")).data == []


@pytest.mark.spec("SB-57")
async def test_words_from_the_future(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create()
    emulator.spoil(Fault(kind="unknown_enum", method="GET", path="status$"))
    assert await client.status(box) == "hibernating"
    assert await client.status(box) == "idle"


@pytest.mark.spec("SB-57")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/box", b"{"),
        ("/v2/box", b"[1]"),
        ("/v2/box", b'{"labels": 5}'),
        ("/v2/box/from-snapshot", b"{}"),
        ("/v2/box/BOX/exec", b'{"command": "ls"}'),
        ("/v2/box/BOX/exec", b'{"command": []}'),
        ("/v2/box/BOX/code", b'{"language": "cobol", "code": "x"}'),
        ("/v2/box/BOX/files/write", b'{"path": "x", "content": "?", "encoding": "base64"}'),
        ("/v2/box/BOX/files/write", b'{"path": "a\\u0000b", "content": "x"}'),
        ("/v2/box/BOX/code", b'{"language": "python", "code": "1", "timeout": "soon"}'),
        ("/v2/box/BOX/files/upload", b"{}"),
        ("/v2/box/BOX/git/exec", b'{"args": 1}'),
        ("/v2/box/BOX/config/network-policy", b"{}"),
        ("/v2/box/BOX/nonsense", b"{}"),
        ("/v2/box/none/exec", b"{}"),
    ],
)
async def test_bad_input_is_a_clear_error(client: Client, path: str, body: bytes) -> None:
    box = await client.create()
    method = "PUT" if "config" in path else "POST"
    answer = await asyncio.to_thread(client.call_now, method, path.replace("BOX", box), body)
    assert 400 <= answer.status < 500
    assert set(answer.data) == {"error"} and answer.data["error"]


@pytest.mark.spec("SB-57")
def test_it_runs_by_itself_and_is_steered_over_http(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ironworks.testing.upstash", "--state", str(tmp_path), "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        url = process.stdout.readline().strip()
        try:
            box = ask(url, "POST", "/v2/box", {"runtime": "python"})["id"]
            detach = ["sh", "-c", "setsid nohup sh -c 'sleep 0.3; echo done > out' >/dev/null 2>&1 &"]
            ask(url, "POST", f"/v2/box/{box}/exec", {"command": detach})
            ask(url, "POST", "/emulator/clock", {"advance_s": 1800})
            look = {"command": ["sh", "-c", "while ! grep done out; do sleep 0.05; done"]}
            assert ask(url, "POST", f"/v2/box/{box}/exec", look)["output"] == "done\n"
            assert [shown["id"] for shown in ask(url, "GET", "/emulator/boxes")] == [box]
            ask(url, "POST", "/emulator/faults", {"kind": "unknown_enum", "path": "status"})
            assert ask(url, "GET", f"/v2/box/{box}/status") == {"status": "hibernating"}
            assert ask(url, "GET", "/emulator/requests")[-1]["fault"] == "unknown_enum"
        finally:
            process.stdin.close()
            assert process.wait(60) == 0
    assert not list(tmp_path.rglob("root"))


def ask(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data, {"X-Box-Api-Key": "sk-test-box"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return json.loads(response.read())


@pytest.mark.spec("SB-56")
def test_its_boxes_end_with_it_even_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ironworks.testing.upstash", "--state", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            box = ask(url, "POST", "/v2/box", {"runtime": "python"})["id"]
            detach = ["sh", "-c", "setsid nohup sleep 716 >/dev/null 2>&1 &"]
            ask(url, "POST", f"/v2/box/{box}/exec", {"command": detach})
            assert running(b"sleep\x00716")
        finally:
            process.kill()
    deadline_s = time.monotonic() + 30
    while running(b"sleep\x00716") and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not running(b"sleep\x00716")
