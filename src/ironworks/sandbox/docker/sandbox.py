"""One running container."""

import asyncio
from collections.abc import Mapping

from ironworks.core.ports import SandboxUsage
from ironworks.sandbox.docker.boot import Booted
from ironworks.sandbox.docker.engine import NAME, Engine
from ironworks.sandbox.local.cgroup import Group
from ironworks.sandbox.machine import CALL_TIMEOUT_S, Machine


class DockerSandbox(Machine):
    """The `Sandbox` of the docker backend."""

    def __init__(
        self, name: str, env: Mapping[str, str], booted: Booted, engine: Engine, group: Group
    ) -> None:
        super().__init__(name, env, booted.channel, booted.listener)
        self._engine = engine
        self._group = group
        self._stopping = asyncio.Lock()
        self.stopped = False
        """Whether `stop` has come to its end."""

    async def usage(self) -> SandboxUsage:
        answer = await self._channel.call("usage", timeout_s=CALL_TIMEOUT_S)
        return SandboxUsage(
            cpu_s=float(str(answer["cpu_s"])),
            memory_peak_bytes=self._group.memory_peak_bytes() or int(str(answer["memory_peak_bytes"])),
            disk_bytes=await asyncio.to_thread(self._disk_bytes),
            pids_refused=self._group.pids_refused(),
            oom_kills=self._group.oom_kills(),
        )

    async def stop(self) -> None:
        async with self._stopping:
            if self.stopped:
                return
            self._channel.close()
            for each in (self.listener, *(self.ways or ())):
                each.close()
            await asyncio.to_thread(self._engine.end, self.name)
            self.stopped = True

    def _disk_bytes(self) -> int:
        found = (each for each in self._engine.containers(size=True) if each["Labels"][NAME] == self.name)
        return next((int(each.get("SizeRw") or 0) for each in found), 0)
