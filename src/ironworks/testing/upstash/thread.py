"""Threads of the emulator's own: a client in its process may have taken all that the event loop has."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

THREADS = ThreadPoolExecutor(8, "emulator")
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def in_thread(call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call what blocks."""
    return await asyncio.get_running_loop().run_in_executor(THREADS, call, *arguments)
