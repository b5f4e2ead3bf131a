"""A real sandbox, a scripted model, and between them as little of a gateway as an agent needs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import h11
import pytest

from ironworks.core.errors import CapabilityError
from ironworks.core.models import Issue
from ironworks.core.ports import AgentTask, Sandbox, SandboxSpec
from ironworks.core.settings import AgentSettings
from ironworks.sandbox.local.backend import LocalBackend

Tools = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
ISSUE = Issue(id="fix-add", title="Add adds", body="It subtracts.")


class Relay:
    """Serves a listener: `/tools/<verb>` by `tools`, the rest by the server at `upstream`."""

    def __init__(self, upstream: str = "", tools: Tools | None = None) -> None:
        self.upstream = upstream
        self.tools = tools
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            http = h11.Connection(h11.SERVER)
            head, body = await read_request(http, reader)
            path = head.target.decode()
            if path.startswith("/tools/") and self.tools:
                status, text = await self.tools(path.removeprefix("/tools/"), body)
                headers = [("content-length", str(len(text)))]
                writer.write(http.send(h11.Response(status_code=status, headers=headers)) or b"")
                writer.write((http.send(h11.Data(data=text)) or b"") + (http.send(h11.EndOfMessage()) or b""))
            else:
                await self._pass_on(head, body, writer)
            await writer.drain()
        writer.close()
        self._tasks.discard(task)

    async def _pass_on(self, head: h11.Request, body: bytes, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.removeprefix("http://").partition(":")
        reader, upstream = await asyncio.open_connection(host, int(port))
        client = h11.Connection(h11.CLIENT)
        headers = [(name, value) for name, value in head.headers if name != b"connection"]
        request = h11.Request(method="POST", target=head.target, headers=[*headers, ("connection", "close")])
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            upstream.write(client.send(event) or b"")
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        upstream.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def read_request(http: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes]:
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await asyncio.wait_for(reader.read(65536), 60))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head:
            return head, body
        else:
            raise ConnectionError("no request")


class Attached:
    """A sandbox whose way out is a relay."""

    def __init__(self, sandbox: Sandbox, relay: Relay, capabilities: frozenset[str]) -> None:
        self.sandbox = sandbox
        self.relay = relay
        self.capabilities = capabilities

    async def sh(self, command: str) -> str:
        result = await self.sandbox.exec(["sh", "-c", command], timeout_s=60)
        return result.text()


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    try:
        backend = LocalBackend(tmp_path / "sandboxes")
    except CapabilityError as error:
        pytest.skip(f"needs a local sandbox: {error}")
    yield backend
    await backend.close()


@pytest.fixture
async def attached(backend: LocalBackend) -> AsyncIterator[Attached]:
    async with attach(backend, "agent-1") as attached:
        yield attached


@contextlib.asynccontextmanager
async def attach(backend: LocalBackend, name: str) -> AsyncIterator[Attached]:
    sandbox = await backend.create(SandboxSpec(name=name))
    relay = Relay()
    server = await asyncio.start_server(relay.serve, sock=sandbox.listener.dup())
    try:
        yield Attached(sandbox, relay, backend.capabilities())
    finally:
        server.close()
        await relay.close()
        await sandbox.stop()


def task_for(
    prompt: str = "do it", *, stage: str = "work", command: tuple[str, ...] = (), **settings: object
) -> AgentTask:
    url = "http://127.0.0.1:3128"
    return AgentTask.model_validate(
        {
            "stage": stage,
            "issue": ISSUE,
            "prompt": prompt,
            "settings": AgentSettings.model_validate(
                {"command": command, "model": "scripted", "timeout_s": 60, "silence_s": 60, **settings}
            ),
            "env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy", "IW_URL": f"{url}/tools"},
        }
    )
