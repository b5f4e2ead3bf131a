"""What can go wrong with the service, on demand."""

import re
from typing import Annotated, Literal

from pydantic import Field

from ironworks.core.models import Model

FaultKind = Literal["status", "html", "not_json", "stall", "reset", "cut", "split_exit", "unknown_enum"]


class Fault(Model):
    """Spoils the next `times` requests that match.

    - status: `status` with `headers` and the service's error body
    - html: a 502 of a proxy in front of the service
    - not_json: 200 whose body is no JSON
    - stall: no answer, until the client hangs up or `stall_s` real seconds have gone
    - reset: half an answer, then the connection is reset
    - cut: a stream or session ends without its exit (other answers: as reset)
    - split_exit: the exit marker of a stream comes in two network chunks
    - unknown_enum: every `status` in the answer is a word that no client knows
    """

    kind: FaultKind
    method: str = ""
    """Of the request; empty = any."""
    path: str = ""
    """Regular expression, searched in the path."""
    status: int = 500
    error: str = "injected"
    headers: dict[str, str] = {}
    times: Annotated[int, Field(ge=1)] = 1
    after: bool = False
    """Do what was asked first, then spoil the answer: what a client that retries must cope with."""
    stall_s: float = 600.0

    def matches(self, method: str, path: str) -> bool:
        return self.method in {"", method} and re.search(self.path, path) is not None


class Creation(Model):
    """How the next box comes to be. A box that never gets ready stays `creating`."""

    ends: Literal["idle", "error", "never"] = "idle"
    polls: int = 0
    """Looks at it before it is ready."""
    delay_s: float = 0.0
    """Of the emulator's clock before it is ready."""


class Faults:
    """The faults that are still to come."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Fault, int]] = []

    def add(self, fault: Fault) -> None:
        self._waiting.append((fault, fault.times))

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, method: str, path: str) -> Fault | None:
        for index, (fault, left) in enumerate(self._waiting):
            if fault.matches(method, path):
                if left > 1:
                    self._waiting[index] = (fault, left - 1)
                else:
                    del self._waiting[index]
                return fault
        return None
