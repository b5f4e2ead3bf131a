"""A real sandbox whose only way out is a real gateway, with a scripted model behind it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ironworks.agents.transcript import FileTranscript
from ironworks.core.clock import SystemClock
from ironworks.core.errors import CapabilityError
from ironworks.core.events import Event
from ironworks.core.models import Issue
from ironworks.core.ports import GATEWAY_PORT, AgentTask, Mount, SandboxSpec
from ironworks.core.settings import AgentSettings, NetworkSettings, Price, ProviderSettings
from ironworks.egress.attachment import Attachment
from ironworks.egress.gateway import Gateway
from ironworks.egress.grant import Grant
from ironworks.sandbox.local.backend import LocalBackend
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

Tools = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
ISSUE = Issue(id="fix-add", title="Add adds", body="It subtracts.")
NOWHERE = "http://127.0.0.1:9"
PRICE = Price(input=1, output=1)
URL = f"http://127.0.0.1:{GATEWAY_PORT}"
ENV = {"ANTHROPIC_BASE_URL": f"{URL}/scripted", "ANTHROPIC_API_KEY": "dummy", "IW_URL": f"{URL}/tools"}


class Place:
    """A sandbox, and the means to open its way out."""

    def __init__(self, backend: LocalBackend, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self.events: list[Event] = []
        self._gateways: list[Gateway] = []
        self._store = Store(folder / "ironworks.db")

    async def boot(self, *mounts: Mount) -> None:
        """Also again, on the disk that is left."""
        self.sandbox = await self.backend.create(SandboxSpec(name="agent-1", mounts=mounts))

    def connect(self, base_url: str = NOWHERE, tools: Tools | None = None, **grant: object) -> Attachment:
        provider = ProviderSettings(base_url=base_url, key="env:KEY", prices={"*": PRICE})
        gateway = Gateway(
            providers={"scripted": provider, "other": provider},
            network=NetworkSettings(),
            ledger=Ledger(self._store, SystemClock()),
            secrets=lambda _: "sk-test-real",
            clock=SystemClock(),
            on_event=lambda event, key: self.events.append(event),
        )
        self._gateways.append(gateway)
        about = {
            "key": "a1",
            "run": "r1",
            "issue": ISSUE.id,
            "stage": "work",
            "issue_cap_usd": 1000,
            "models": True,
        }
        return gateway.attach(self.sandbox.listener, Grant.model_validate({**about, **grant}), tools=tools)

    async def sh(self, command: str) -> str:
        result = await self.sandbox.exec(["sh", "-c", command], timeout_s=60)
        return result.text()

    async def close(self) -> None:
        for gateway in self._gateways:
            await gateway.close()
        self._store.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    try:
        backend = LocalBackend(tmp_path / "sandboxes")
        place = Place(backend, tmp_path)
        await place.boot()
    except CapabilityError as error:
        pytest.skip(f"needs a local sandbox: {error}")
    yield place
    await place.close()
    await backend.close()


@pytest.fixture
async def transcript(tmp_path: Path) -> AsyncIterator[FileTranscript]:
    transcript = FileTranscript(tmp_path / "logs")
    yield transcript
    transcript.close()


def task_for(
    prompt: str = "do it",
    *,
    stage: str = "work",
    command: tuple[str, ...] = (),
    session: str | None = None,
    **settings: object,
) -> AgentTask:
    defaults = {"command": command, "model": "scripted-1", "timeout_s": 60, "silence_s": 60}
    return AgentTask.model_validate(
        {
            "stage": stage,
            "issue": ISSUE,
            "prompt": prompt,
            "settings": AgentSettings.model_validate({**defaults, **settings}),
            "session": session,
            "env": ENV,
        }
    )
