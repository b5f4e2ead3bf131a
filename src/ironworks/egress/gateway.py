"""The gateway of a factory: made once from the operator's settings, attached to each sandbox's listener."""

import asyncio
import socket
import weakref
from collections.abc import Callable

from ironworks.core.clock import Clock
from ironworks.core.errors import ConfigError
from ironworks.core.events import Event
from ironworks.core.ports import Ways
from ironworks.core.settings import NetworkSettings, ProviderSettings
from ironworks.egress.allowlist import AllowList
from ironworks.egress.attachment import Attachment
from ironworks.egress.budget import Budget
from ironworks.egress.client import Limits
from ironworks.egress.forward import Attached, Forwarder, Secrets
from ironworks.egress.grant import Grant, Tools
from ironworks.egress.host import Resolver, resolve
from ironworks.egress.preset import PresetLookup, Presets
from ironworks.egress.provider import Provider
from ironworks.store.ledger import Ledger

RESERVED = {"tools", "host"}


class Gateway:
    """Holds the secrets, the prices and the budget. Use it from one event loop.

    `secrets` is asked for every header at once, so that a missing one is an error now and not in the middle
    of a night. A provider without its key refuses every request, and says why. `on_event` may block; it is
    called from a thread.
    """

    def __init__(
        self,
        *,
        providers: dict[str, ProviderSettings],
        network: NetworkSettings,
        ledger: Ledger,
        secrets: Secrets,
        clock: Clock,
        on_event: Callable[[Event, str], None],
        resolver: Resolver = resolve,
        presets: PresetLookup | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        if taken := RESERVED & providers.keys():
            raise ConfigError(f"[providers.{min(taken)}]: the name is taken by the gateway itself")
        self._providers = {
            name: Provider(name, settings, secrets, resolver) for name, settings in providers.items()
        }
        self._forwarder = Forwarder(Attached(network.headers, secrets))
        self._budget = Budget(ledger, clock, on_event)
        self._clock = clock
        self._on_event = on_event
        self._resolver = resolver
        self._presets = presets or Presets()
        self._limits = limits
        self._attachments: weakref.WeakSet[Attachment] = weakref.WeakSet()

    def attach(
        self, listener: socket.socket, grant: Grant, *, tools: Tools | None = None, ways: Ways | None = None
    ) -> Attachment:
        """Serve what connects to `listener` until the attachment is closed. Call it in the event loop.

        `ways` are a transparent sandbox's further listeners, under the same policy. `grant.allow` is the
        whole allow-list of this sandbox. ConfigError for a rule that cannot be read.
        """
        attachment = Attachment(
            listener,
            grant,
            providers=self._providers,
            allowed=AllowList(grant.allow, presets=self._presets, resolver=self._resolver),
            forwarder=self._forwarder,
            budget=self._budget,
            tools=tools,
            ways=ways,
            clock=self._clock,
            limits=self._limits,
            on_event=self._on_event,
        )
        self._attachments.add(attachment)
        return attachment

    async def close(self) -> None:
        """End every attachment."""
        await asyncio.gather(*(attachment.close() for attachment in self._attachments))
        self._budget.close()
