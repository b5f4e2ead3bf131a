"""How one kind of provider is spoken to: everything the gateway must know about its wire format."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Protocol

from ironworks.egress.tokens import Tokens

Json = dict[str, Any]
ErrorKind = Literal["budget", "denied", "failed"]


class Dialect(Protocol):
    """Stateless. Documents are decoded JSON of unknown shape; no method may raise for a strange one
    except `tokens`, which raises ValueError."""

    prices: ClassVar[str]
    """The provider's name in the public price list."""
    metered: ClassVar[re.Pattern[str]]
    """Paths of POST requests that cost money."""
    free: ClassVar[tuple[tuple[str, re.Pattern[str]], ...]]
    """Method and path of what costs nothing. Everything else is refused."""
    budget_status: ClassVar[int]
    """The status that makes its clients stop at once when the budget is spent."""

    says_when_done: ClassVar[bool]
    """Its streams end with an event for which `ends` is true; one without it has been cut off."""

    def key_header(self, key: str) -> tuple[str, str]:
        """How the key is attached."""
        ...

    def env(self, url: str) -> dict[str, str]:
        """Variables that make its usual clients talk to `url` with a dummy key."""
        ...

    def model(self, path: str, body: Json) -> str:
        """The model a request names; empty when it names none."""
        ...

    def limit(self, body: Json) -> int | None:
        """The most output tokens a request asks for."""
        ...

    def limited(self, body: Json, limit: int) -> Json:
        """The same request with that limit."""
        ...

    def prepared(self, body: Json) -> Json:
        """The same request, made to report its usage."""
        ...

    def unbounded(self, body: Json) -> str:
        """What in a request costs more than its size and limit tell; empty when nothing does."""
        ...

    def usage(self, document: Json) -> Mapping[str, Any] | None:
        """The usage object in an answer or in one event of a stream."""
        ...

    def ends(self, document: Json) -> bool:
        """Whether this event is the last of its stream, so that the usage seen is final."""
        ...

    def tokens(self, usage: Mapping[str, Any]) -> Tokens:
        """ValueError when the numbers make no sense."""
        ...

    def error(self, status: int, kind: ErrorKind, message: str) -> Json:
        """The body of an error answer as its clients expect it."""
        ...


def whole(value: Any) -> int | None:
    """A positive whole number, or None for anything else."""
    return value if type(value) is int and value > 0 else None


def tool_types(body: Json) -> Iterator[str]:
    """The `type` of every tool a request brings."""
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict) and isinstance(tool.get("type"), str):
            yield tool["type"]


def objects(value: Any) -> Iterator[Json]:
    """Every object anywhere inside a document."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
