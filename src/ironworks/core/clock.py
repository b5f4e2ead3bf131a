"""Time as a dependency, so that leases and time-outs can be tested without waiting."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time."""

    def now(self) -> datetime:
        """Aware UTC wall time."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()
