"""Names and addresses of other machines, in the one form in which they are compared and dialled."""

import asyncio
import functools
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ironworks.egress.refusal import Refusal, denial

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port to addresses; raises OSError when there are none."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
# Not the loop's shared threads: while those are all busy with git, agents must still reach their models.
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="resolve")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def host_name(text: str) -> str:
    """`text` as a lower-case name without a trailing dot.

    Refused: an IP address in any notation (a name whose last label is a number is one to some resolver), and
    whatever is no host name.
    """
    name = text.lower().removesuffix(".")
    if any(mark in name for mark in ":[]") or _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise denial("address", "IP addresses are not allowed as a destination, only names")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise denial("bad-host", "not a host name")
    return name


def authority(text: str, default_port: int | None) -> tuple[str, int]:
    """`host[:port]` split and normalised; without a default the port must be given."""
    if text.startswith("["):
        raise denial("address", "IP addresses are not allowed as a destination, only names")
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(default_port or "")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise denial("bad-port", "not a host and a port")
    return host_name(host), int(port)


def is_public(address: str) -> bool:
    """Whether an address, and each IPv4 address wrapped in it, belongs to the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    if ip.is_multicast or ip.is_reserved or not ip.is_global:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        wrapped = (ip.ipv4_mapped, ip.sixtofour, ip.teredo[1] if ip.teredo else None)
        return all(is_public(str(v4)) for v4 in wrapped if v4 is not None)
    return True


async def resolve(name: str, port: int) -> Sequence[str]:
    """The system's own resolver, off the event loop."""
    lookup = functools.partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    answers = await asyncio.get_running_loop().run_in_executor(_THREADS, lookup)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


async def addresses(name: str, port: int, resolver: Resolver, *, pinned: bool) -> Sequence[str]:
    """Where `name` is, asked once. Unless an operator pinned the name every answer must be public."""
    try:
        found = await asyncio.wait_for(resolver(name, port), 15)
    except (OSError, UnicodeError):
        found = ()
    if not found:
        raise Refusal(502, "unresolved", f"{name} cannot be resolved")
    if not pinned and not all(is_public(address) for address in found):
        raise denial("not-public", f"{name} leads to an address that is not on the public internet")
    return found
