"""A gateway on a real ledger, with a listener that stands for a sandbox."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.egress.stub import Reply, ask, raw

from ironworks.core.clock import SystemClock
from ironworks.core.errors import ConfigError
from ironworks.core.events import Event
from ironworks.core.ports import Ways
from ironworks.core.settings import NetworkSettings, Price, ProviderSettings
from ironworks.egress.attachment import Attachment
from ironworks.egress.client import Limits
from ironworks.egress.gateway import Gateway
from ironworks.egress.grant import Grant, Tools
from ironworks.egress.host import Resolver
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

KEY = "sk-test-4f2d8a1c9b7e6053"
PRICES = {"m": Price(input=1.0, output=10.0)}


def secrets(where: str) -> str:
    if where != "env:KEY":
        raise ConfigError(f"{where} is not set")
    return KEY


def listener() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(128)
    return made


@dataclass
class Box:
    """One attached sandbox and what stands around it."""

    gateway: Gateway
    ledger: Ledger
    listener: socket.socket
    attachment: Attachment
    events: list[tuple[Event, str]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    async def ask(self, method: str, target: str, **more: Any) -> Reply:
        return await asyncio.to_thread(ask, self.port, method, target, **more)

    async def raw(self, data: bytes) -> bytes:
        return await asyncio.to_thread(raw, self.port, data)

    def events_of(self, kind: str) -> list[Event]:
        return [event for event, _ in self.events if event.kind == kind]


def anthropic(url: str, **more: Any) -> ProviderSettings:
    return ProviderSettings(**{"base_url": url, "key": "env:KEY", "prices": PRICES, **more})


def grant(**more: Any) -> Grant:
    known: dict[str, Any] = {"key": "r/i/work/1", "run": "r", "issue": "i", "stage": "work", "models": True}
    return Grant(**{**known, "issue_cap_usd": 3.0, **more})


OpenBox = Callable[..., Any]


@pytest.fixture
def open_box(tmp_path: Path) -> OpenBox:
    """`async with open_box(providers=..., grant=..., ...) as box`."""

    @asynccontextmanager
    async def opened(
        *,
        providers: dict[str, ProviderSettings] | None = None,
        network: NetworkSettings | None = None,
        grant: Grant = grant(),  # noqa: B008 - frozen
        tools: Tools | None = None,
        names: dict[str, Sequence[str]] | None = None,
        presets: dict[str, Sequence[tuple[str, int]]] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        resolver: Resolver | None = None,
        ways: Ways | None = None,
    ) -> AsyncIterator[Box]:
        async def known_names(name: str, port: int) -> Sequence[str]:
            return {"127.0.0.1": ["127.0.0.1"], **(names or {})}.get(name, [])

        async def lookup(name: str) -> Sequence[tuple[str, int]]:
            return (presets or {})[name]

        clock = SystemClock()
        store = Store(tmp_path / "ironworks.db")
        ledger = Ledger(store, clock)
        events: list[tuple[Event, str]] = []
        gateway = Gateway(
            providers=providers or {},
            network=network or NetworkSettings(),
            ledger=ledger,
            secrets=secrets,
            clock=clock,
            on_event=lambda event, key: events.append((event, key)),
            resolver=resolver or known_names,
            presets=lookup,
            limits=limits,
        )
        with listener() as socket:
            box = Box(gateway, ledger, socket, gateway.attach(socket, grant, tools=tools, ways=ways), events)
            try:
                yield box
            finally:
                await gateway.close()
                store.close()

    return opened
