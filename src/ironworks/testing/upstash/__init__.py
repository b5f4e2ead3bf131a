"""An emulator of the hosted Upstash Box on loopback, with real processes, real files and faults on demand."""

from ironworks.testing.upstash.clock import ScaledClock
from ironworks.testing.upstash.emulator import UpstashEmulator
from ironworks.testing.upstash.fault import Creation, Fault
from ironworks.testing.upstash.service import Options

__all__ = ["Creation", "Fault", "Options", "ScaledClock", "UpstashEmulator"]
