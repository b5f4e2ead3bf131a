"""One running local sandbox."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping

from ironworks.core.errors import SandboxError
from ironworks.core.ports import SandboxUsage
from ironworks.sandbox.local.boot import Booted, reap
from ironworks.sandbox.local.cgroup import Group
from ironworks.sandbox.local.disk import AREAS, Disk, free_space
from ironworks.sandbox.local.unlinked import unlinked_bytes
from ironworks.sandbox.machine import CALL_TIMEOUT_S, Machine

WATCH_S = 0.2
MOST_TIME_WATCHING = 4
"""A disk of very many files takes long to measure: how many times that long nobody looks again."""
ROOM_BYTES = 64 << 20
LAST_BYTES = 256 << 20
"""With less left on the file system all that runs is ended too: there are ways to hide what takes room."""


class LocalSandbox(Machine):
    """The `Sandbox` of the local backend."""

    def __init__(
        self,
        disk: Disk,
        env: Mapping[str, str],
        booted: Booted,
        group: Group,
        *,
        disk_bytes: int | None = None,
    ) -> None:
        super().__init__(disk.name, env, booted.channel, booted.listener)
        self._disk = disk
        self._process = booted.process
        self._pid = booted.pid
        self._pidfd = os.pidfd_open(booted.pid)
        self._group = group
        self._stopping = asyncio.Lock()
        self._disk_kills = 0
        self._watch = asyncio.create_task(self._keep_below(disk_bytes)) if disk_bytes else None
        self.stopped = False
        """Whether `stop` has come to its end."""

    async def usage(self) -> SandboxUsage:
        answer = await self._channel.call("usage", timeout_s=CALL_TIMEOUT_S)
        peak_bytes = self._group.memory_peak_bytes() or int(str(answer["memory_peak_bytes"]))
        return SandboxUsage(
            cpu_s=float(str(answer["cpu_s"])),
            memory_peak_bytes=peak_bytes,
            disk_bytes=await asyncio.to_thread(self._disk.size_bytes),
            pids_refused=self._group.pids_refused(),
            oom_kills=self._group.oom_kills(),
            disk_kills=self._disk_kills,
        )

    async def stop(self) -> None:
        async with self._stopping:
            if self.stopped:
                return
            if self._watch is not None:
                self._watch.cancel()
            # The kernel ends all others with pid 1, and lets pid 1 go only after them.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._channel.close()
            for each in (self.listener, *(self.ways or ())):
                each.close()
            await asyncio.to_thread(reap, self._process)
            self._group.remove()
            os.close(self._pidfd)
            self.stopped = True

    async def _keep_below(self, limit_bytes: int) -> None:
        """End all that runs whenever the disk has grown past the limit.

        What was written stays, to be looked at and captured; for that there is some room above the limit.
        """
        allowed_bytes = limit_bytes
        with contextlib.suppress(SandboxError):
            while True:
                began_s = time.monotonic()
                if await asyncio.to_thread(self._taken_bytes) > allowed_bytes:
                    self._disk_kills += 1
                    await self.kill_all()
                    # What had no name is gone now.
                    left_bytes = await asyncio.to_thread(self._disk.size_bytes)
                    allowed_bytes = max(allowed_bytes, left_bytes + ROOM_BYTES)
                elif free_space(self._disk.path)[0] < LAST_BYTES:
                    self._disk_kills += 1
                    await self.kill_all()
                await asyncio.sleep(max(WATCH_S, MOST_TIME_WATCHING * (time.monotonic() - began_s)))

    def _taken_bytes(self) -> int:
        return self._disk.size_bytes() + unlinked_bytes(self._pid, [inside for _, inside in AREAS])
