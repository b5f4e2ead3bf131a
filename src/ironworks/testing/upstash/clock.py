"""Time that can run fast and jump, so that an hour of idling is tested in a moment."""

import time
from datetime import UTC, datetime, timedelta


class ScaledClock:
    """A `Clock` whose seconds last `1 / scale` real ones and that can jump. Processes do not notice."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._ahead_s = 0.0
        self._started_s = time.monotonic()
        self._epoch = datetime.now(UTC)

    def monotonic_s(self) -> float:
        return (time.monotonic() - self._started_s) * self._scale + self._ahead_s

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self.monotonic_s())

    def advance(self, by_s: float) -> None:
        if by_s < 0:
            raise ValueError("time does not go backwards")
        self._ahead_s += by_s
