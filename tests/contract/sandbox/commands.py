"""Short ways to run something in a sandbox and to insist that it works."""

import asyncio
from collections.abc import Awaitable, Callable

from ironworks.core.ports import Sandbox


async def sh(sandbox: Sandbox, script: str, *, timeout_s: float = 30) -> str:
    """What a script prints; it must succeed."""
    result = await sandbox.exec(["sh", "-c", script], timeout_s=timeout_s)
    assert result.exit_code == 0, result.text()
    return result.stdout.decode()


async def py(sandbox: Sandbox, script: str, *, timeout_s: float = 30) -> str:
    """What a Python program prints; it must succeed."""
    result = await sandbox.exec(["/usr/bin/python3", "-I", "-c", script], timeout_s=timeout_s)
    assert result.exit_code == 0, result.text()
    return result.stdout.decode()


async def until(holds: Callable[[], Awaitable[bool]], *, timeout_s: float = 30) -> None:
    """Wait for something that a sandbox does on its own time."""
    async with asyncio.timeout(timeout_s):
        while not await holds():  # noqa: ASYNC110 -- a sandbox sets no event of ours
            await asyncio.sleep(0.02)


async def processes(sandbox: Sandbox) -> set[str]:
    """The command lines of what runs in the sandbox."""
    script = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p 2>/dev/null; echo; done"
    return {line.strip() for line in (await sh(sandbox, script)).splitlines() if line}
