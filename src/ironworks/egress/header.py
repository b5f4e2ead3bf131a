"""Which header fields and query parameters may cross the gateway."""

import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

Headers = list[tuple[bytes, bytes]]

_HOP = {
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "content-length", "host", "expect", "http2-settings",
}  # fmt: skip
_CREDENTIALS = {"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-goog-user-project", "cookie"}
_TRACES = {"forwarded", "via", "max-forwards"}
_KEY_PARAMETER = re.compile(
    r"(?:.*[_-])?(?:key|token|secret|password|credential|signature|auth)", re.IGNORECASE
)


def plain_name(name: bytes) -> str:
    """A field name as servers that take `_` for `-` would read it."""
    return name.decode("latin-1").lower().replace("_", "-").strip()


def _hop_by_hop(headers: Headers) -> set[str]:
    named = [value for name, value in headers if plain_name(name) == "connection"]
    return _HOP | {plain_name(part) for value in named for part in value.split(b",")}


def onward(headers: Headers, *, attached: Iterable[str] = (), guarded: bool) -> Headers:
    """Request fields that go upstream.

    `guarded`: the host attaches a secret there, so whatever the sandbox sent in place of one is dropped, and
    what it wrote in the field names `attached` as well.
    """
    dropped = _hop_by_hop(headers) | _TRACES | {name.lower().replace("_", "-") for name in attached}
    if guarded:
        dropped |= _CREDENTIALS | {"accept-encoding"}
    return [
        (name, value)
        for name, value in headers
        if (plain := plain_name(name)) not in dropped and not plain.startswith(("proxy-", "x-forwarded-"))
    ]


def back(headers: Headers, *, guarded: bool) -> Headers:
    """Answer fields that go into the sandbox; the body's framing is ours to write."""
    dropped = _hop_by_hop(headers) | ({"set-cookie", "alt-svc"} if guarded else {"alt-svc"})
    return [(name, value) for name, value in headers if plain_name(name) not in dropped]


def value_of(headers: Headers, name: bytes) -> str:
    """The field's value in lower case without its parameters; empty when absent."""
    found = next((value for key, value in headers if key.lower() == name), b"")
    return found.decode("latin-1").partition(";")[0].strip().lower()


def without_keys(query: str) -> str:
    """A query string without the parameters in which APIs take keys."""
    pairs = query.split("&")
    return "&".join(
        pair for pair in pairs if not _KEY_PARAMETER.fullmatch(unquote_plus(pair.partition("=")[0]))
    )
