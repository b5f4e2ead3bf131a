"""Programs that a project's tests need beside them, in the same sandbox: a database, a queue, a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Literal

from ironworks.core.errors import SandboxError
from ironworks.core.ports import WORK_DIR, Sandbox
from ironworks.core.settings import ServiceSettings

FOREVER_S = 1e8
CHECK_TIMEOUT_S = 15.0
CHECK_EVERY_S = 0.1
TAIL_BYTES = 3000
KEPT_BYTES = 1 << 16
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"


class ServiceFailed(SandboxError):
    """One did not become ready: nothing is known of what it was to serve."""


class Service:
    """One of them, started; it ends with the sandbox, with all that runs there, or when told."""

    def __init__(self, name: str, settings: ServiceSettings, sandbox: Sandbox) -> None:
        self.name = name
        self._settings = settings
        self._sandbox = sandbox
        self._said = bytearray()
        self._running = asyncio.ensure_future(
            sandbox.exec(
                ["sh", "-c", settings.command],
                env=settings.env,
                cwd=WORK_DIR,
                timeout_s=FOREVER_S,
                on_output=self._keep,
                max_output=0,
            )
        )

    async def ready(self) -> None:
        """Wait until it answers. ServiceFailed, with its last words, when it ends first or never does."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                while not await self._answers():
                    await asyncio.wait([self._running], timeout=CHECK_EVERY_S)
                    if self._running.done():
                        raise ServiceFailed(self.ending())
        except TimeoutError:
            limit = f"{self._settings.timeout_s:g} s"
            raise ServiceFailed(f"service {self.name} was not ready within {limit}: {self._tail()}") from None

    def ending(self) -> str:
        """How it ended by itself, in words; empty while it runs."""
        if not self._running.done() or self._running.cancelled():
            return ""
        failure = self._running.exception()
        code = str(failure) if failure else f"exit code {self._running.result().exit_code}"
        return f"service {self.name} ended ({code}): {self._tail()}"

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _answers(self) -> bool:
        ready = self._settings.ready
        connect = ["/usr/bin/python3", "-c", CONNECT, str(ready)]
        check = connect if isinstance(ready, int) else ["sh", "-c", ready]
        result = await self._sandbox.exec(
            check, env=self._settings.env, cwd=WORK_DIR, timeout_s=CHECK_TIMEOUT_S, max_output=TAIL_BYTES
        )
        return result.ok

    def _keep(self, _: Literal["stdout", "stderr"], data: bytes) -> None:
        self._said += data
        del self._said[:-KEPT_BYTES]

    def _tail(self) -> str:
        return bytes(self._said[-TAIL_BYTES:]).decode("utf-8", "replace").strip() or "it printed nothing"


@contextlib.asynccontextmanager
async def services(sandbox: Sandbox, wanted: Mapping[str, ServiceSettings]) -> AsyncIterator[list[Service]]:
    """`wanted`, ready, in the order in which they are written; ended with the block.

    ServiceFailed when one does not become ready: nothing is known then of what the sandbox holds.
    """
    started: list[Service] = []
    try:
        for name, settings in wanted.items():
            started.append(Service(name, settings, sandbox))
            await started[-1].ready()
        yield started
    finally:
        for service in reversed(started):
            await service.stop()
