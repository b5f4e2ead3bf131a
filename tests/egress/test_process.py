"""What only shows with the gateway in another process: being killed, and real package clients."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.egress.stub import STREAM_HEAD, Seen, stream_events, stub

from ironworks.core.clock import SystemClock
from ironworks.egress.preset import Presets
from ironworks.egress.refusal import Refusal
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def gateway(
    database: Path, url: str, *allow: str
) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """Its port, and the process, which is killed in the end."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.egress.gateway_process", str(database), url, *allow,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(await asyncio.wait_for(process.stdout.readline(), 60)), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.spec("EG-12")
@pytest.mark.parametrize("when", ["before the answer", "in the middle", "at its last event"])
async def test_a_gateway_killed_in_a_call_loses_no_cent(tmp_path: Path, when: str) -> None:
    """The true cost is 0.07 dollars; whatever moment it is, no less may be on the ledger afterwards."""
    reached = asyncio.Event()

    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        if when != "before the answer":
            events = stream_events(100, 7000)
            writer.write(STREAM_HEAD + b"".join(events if when == "at its last event" else events[:2]))
            await writer.drain()
        reached.set()
        await asyncio.sleep(60)

    database = tmp_path / "ironworks.db"
    request = json.dumps({"model": "m", "max_tokens": 7000, "stream": True, "messages": []}).encode()
    async with stub(behave) as up, gateway(database, up.url) as (port, process):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /claude/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(request)
        )
        writer.write(request)
        await asyncio.wait_for(reached.wait(), 60)
        if when == "at its last event":
            await asyncio.wait_for(reader.readuntil(b"message_stop"), 60)
        process.kill()
        await process.wait()
        writer.close()
    store = Store(database)
    ledger = Ledger(store, SystemClock())
    recovered = ledger.recover()
    assert recovered == (0 if when == "at its last event" else 1)
    assert ledger.spent(issue="i") >= (100 + 7000 * 10) / 1e6
    assert [usage.estimated for usage in ledger.usage(run="r")] == [bool(recovered)]
    store.close()


async def index_of(preset: str) -> None:
    """Skip where this machine's client has no index or cannot reach it."""
    try:
        await Presets()(preset)
    except Refusal:
        pytest.skip(f"needs a package index that this machine's {preset} is configured for")


def run(command: list[str], port: int, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    proxy = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    env = {
        **os.environ,
        **dict.fromkeys(names, proxy),
        "UV_SYSTEM_CERTS": "1",
        "UV_CACHE_DIR": str(folder / "uv"),
    }
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
@pytest.mark.spec("EG-18")
@pytest.mark.parametrize("preset", ["pip", "uv", "npm"])
async def test_a_real_client_installs_a_package_through_its_preset_and_not_without(
    tmp_path: Path, preset: str
) -> None:
    commands = {
        "pip": [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--retries=0", "-d",
                "got", "pip"],
        "uv": [str(Path(sys.executable).parent / "uv"), "pip", "install", "--target", "got", "six"],
        "npm": ["npm", "install", "--prefix", "got", "--cache", "cache", "--fetch-retries=0", "left-pad"],
    }  # fmt: skip
    if shutil.which(commands[preset][0]) is None:
        pytest.skip(f"needs {preset}")
    await index_of(preset)
    for allowed in (preset, "other.example"):
        async with gateway(tmp_path / "a.db", "http://127.0.0.1:9", allowed) as (port, process):
            done = await asyncio.to_thread(run, commands[preset], port, tmp_path / allowed)
            process.kill()
            assert process.stdout is not None
            denied = "EgressDenied" in (await process.stdout.read()).decode()
        untrusted = ("self-signed certificate", "UnknownIssuer", "CERTIFICATE_VERIFY_FAILED")
        if any(words in done.stdout + done.stderr for words in untrusted):
            pytest.skip(f"needs a package index whose certificate {preset} trusts")
        if allowed == preset:
            assert done.returncode == 0, done.stdout + done.stderr
            assert any((tmp_path / preset / "got").iterdir())
        # The client may have found the package on this machine instead, but not by leaving the sandbox.
        assert denied == (allowed != preset), done.stdout + done.stderr
