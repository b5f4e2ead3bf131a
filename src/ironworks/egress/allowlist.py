"""The allow-list of one sandbox: which hosts it may reach, on which port, at which addresses."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from ironworks.core.errors import ConfigError
from ironworks.egress.host import Resolver, addresses, authority
from ironworks.egress.preset import PRESETS, PresetLookup
from ironworks.egress.refusal import Refusal, denial


@dataclass(frozen=True)
class Rule:
    """One permitted destination. `address` is the operator's own word where the name is."""

    host: str
    port: int = 443
    below: bool = False
    """Stands for the names below `host` instead of `host` itself (`*.host`)."""
    address: str | None = None
    pinned: bool = False
    """Any address of the name will do, also one inside."""

    def covers(self, host: str, port: int) -> bool:
        if self.port != port:
            return False
        return host.endswith(f".{self.host}") if self.below else host == self.host


@dataclass(frozen=True)
class Destination:
    """A place that policy lets a request go to, with the addresses that were checked for it."""

    scheme: str
    host: str
    port: int
    addresses: tuple[str, ...]

    @property
    def authority(self) -> str:
        default = 443 if self.scheme == "https" else 80
        return self.host if self.port == default else f"{self.host}:{self.port}"


def parse_rule(text: str) -> Rule:
    """`host`, `*.host`, each with `:port` (443 if absent) and `=address` (the operator knows where it is).

    ConfigError for anything else.
    """
    name, equals, address = text.partition("=")
    below = name.startswith("*.")
    try:
        host, port = authority(name.removeprefix("*."), 443)
        if equals:
            ipaddress.ip_address(address)
    except (Refusal, ValueError) as error:
        raise ConfigError(
            f"network rule {text!r} is not a host: {error}",
            hint="write a name, `*.name`, `name:port`, or a preset: " + ", ".join(sorted(PRESETS)),
        ) from None
    return Rule(host, port, below, address or None)


class AllowList:
    """Rules and presets of one sandbox. Presets are looked up when first needed: they ask other programs."""

    def __init__(self, entries: Iterable[str], *, presets: PresetLookup, resolver: Resolver) -> None:
        entries = list(dict.fromkeys(entries))
        self._presets = [entry for entry in entries if entry in PRESETS]
        self._rules = [parse_rule(entry) for entry in entries if entry not in PRESETS]
        self._lookup = presets
        self._resolver = resolver

    async def destination(self, scheme: str, host: str, port: int) -> Destination:
        """Where a request for `host` and `port` may go. Raises Refusal."""
        rule = await self._rule(host, port)
        if rule.address is not None:
            return Destination(scheme, host, port, (rule.address,))
        found = await addresses(host, port, self._resolver, pinned=rule.pinned)
        return Destination(scheme, host, port, tuple(found))

    async def _rule(self, host: str, port: int) -> Rule:
        rules = [rule for rule in self._rules if rule.covers(host, port)]
        if not rules and self._presets:
            rules = [rule for rule in await self._preset_rules() if rule.covers(host, port)]
        if not rules:
            raise denial("not-allowed", f"{host}:{port} is not on this sandbox's allow-list")
        return max(rules, key=lambda rule: (rule.address is not None, not rule.below, len(rule.host)))

    async def _preset_rules(self) -> list[Rule]:
        found = [place for name in self._presets for place in await self._lookup(name)]
        return [Rule(host, port, pinned=True) for host, port in found]
