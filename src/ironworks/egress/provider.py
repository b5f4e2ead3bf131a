"""A model provider behind a base-URL route: where it is, what is attached, what errors look like."""

import json
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from ironworks.core.errors import ConfigError
from ironworks.core.settings import ProviderSettings
from ironworks.egress import header
from ironworks.egress.allowlist import Destination
from ironworks.egress.anthropic import AnthropicDialect
from ironworks.egress.client import Request
from ironworks.egress.dialect import Dialect, ErrorKind
from ironworks.egress.gemini import GeminiDialect
from ironworks.egress.host import Resolver, addresses
from ironworks.egress.openai import OpenAIDialect
from ironworks.egress.price import PriceList
from ironworks.egress.refusal import Refusal
from ironworks.egress.scrub import Scrubber
from ironworks.egress.upstream import Outgoing

DIALECTS: dict[str, Dialect] = {
    "anthropic": AnthropicDialect(),
    "openai": OpenAIDialect(),
    "gemini": GeminiDialect(),
}
_VERSIONED = re.compile(r"/v\d+(?:beta)?$")


class Provider:
    """One `[providers.NAME]` table, ready to be talked to. Shared by all sandboxes; holds the key."""

    def __init__(
        self, name: str, settings: ProviderSettings, secrets: Callable[[str], str], resolver: Resolver
    ) -> None:
        self.name = name
        self.dialect = DIALECTS[settings.kind]
        self.prices = PriceList(name, settings, self.dialect)
        self.attached: list[tuple[str, str]] = []
        self._missing = ""
        try:
            if settings.key is not None:
                self.attached.append(self.dialect.key_header(secrets(settings.key)))
        except ConfigError as error:
            self._missing = f"provider {name} has no key: {error.message}"
        url = urlsplit(settings.base_url)
        self._scheme, self._host = url.scheme, url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._path = url.path.rstrip("/")
        self._resolver = resolver

    def target(self, path: str, query: str) -> str:
        """The upstream's path for a sandbox's: a version both name is named once. No key-like parameters."""
        if _VERSIONED.search(self._path):
            path = re.sub(r"^/v\d+(beta)?/", "/", path)
        kept = header.without_keys(query)
        return f"{self._path}{path}" + (f"?{kept}" if kept else "")

    async def destination(self) -> Destination:
        """Where the operator says it is, at whatever address that has."""
        found = await addresses(self._host, self._port, self._resolver, pinned=True)
        return Destination(self._scheme, self._host, self._port, tuple(found))

    def outgoing(self, request: Request, target: str, body: bytes) -> Outgoing:
        """What is sent on; Refusal when it cannot be."""
        if self._missing:
            raise Refusal(401, "no-key", self._missing)
        if header.value_of(request.headers, b"content-encoding") not in {"", "identity"}:
            raise Refusal(415, "encoded", "send request bodies to a provider without content-encoding")
        names = [name for name, _ in self.attached]
        fields = header.onward(request.headers, attached=names, guarded=True)
        fields += [(b"accept-encoding", b"identity")]
        fields += [(name.encode(), value.encode()) for name, value in self.attached]
        return Outgoing(request.method, target, fields, body)

    def scrubber(self) -> Scrubber:
        return Scrubber(value for _, value in self.attached)

    def refusal(self, refusal: Refusal) -> tuple[int, bytes]:
        """Status and body in the shape that the provider's clients understand."""
        kind: ErrorKind = "denied" if refusal.denied else "failed"
        status = refusal.status
        if refusal.reason == "budget":
            kind, status = "budget", self.dialect.budget_status
        return status, json.dumps(self.dialect.error(status, kind, str(refusal))).encode()
