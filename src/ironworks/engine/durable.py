"""The seam to dbos: flows that survive the process, made of steps that are never done twice once recorded."""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from ironworks.store.sqlite import heal_subsecond_clock

Step = Callable[[], Coroutine[Any, Any, dict[str, Any]]]
Flow = Callable[[str, str, int], Awaitable[None]]

# Constant on purpose: dbos strands the flows of another version, and its default changes with every edit.
APPLICATION_VERSION = "ironworks-1"

THREADS = 32

_flow: Flow | None = None


@DBOS.workflow(name="issue", max_recovery_attempts=None)
async def _issue(run: str, issue: str, generation: int) -> None:
    if _flow is None:
        raise RuntimeError("the engine was launched without a flow")
    await _flow(run, issue, generation)


async def step(name: str, work: Step) -> dict[str, Any]:
    """Do `work` once: its result is recorded, and given back instead of doing it again after a restart.

    A crash before the record repeats it, so `work` must be idempotent. Cancelling leaves it unrecorded.
    """
    result: dict[str, Any] = await DBOS.run_step_async({"name": name}, work)
    return result


async def start(run: str, issue: str, generation: int) -> None:
    """Start a flow, or join the one that a restart has recovered."""
    with SetWorkflowID(f"{run}/{issue}/{generation}"):
        await DBOS.start_workflow_async(_issue, run, issue, generation)


async def is_over(run: str, issue: str, generation: int) -> bool:
    """Whether a flow has ended, well or badly."""
    status = await DBOS.get_workflow_status_async(f"{run}/{issue}/{generation}")
    return status is not None and status.status not in {"PENDING", "ENQUEUED"}


@contextlib.asynccontextmanager
async def launched(database: Path, flow: Flow) -> AsyncIterator[None]:
    """Run the durable engine on SQLite file `database`; flows that a crash interrupted start again at once.

    One process per database: the caller holds the state directory's lock.
    """
    global _flow
    await asyncio.to_thread(_prepare, database)
    heal_subsecond_clock()
    _flow = flow
    DBOS(
        config={
            "name": "ironworks",
            "system_database_url": f"sqlite:///{database}",
            "application_version": APPLICATION_VERSION,
            "executor_id": "local",
            "max_executor_threads": THREADS,
            "log_level": os.environ.get("IRONWORKS_ENGINE_LOG", "CRITICAL"),
            "notification_listener_polling_interval_sec": 1.0,
            "scheduler_polling_interval_sec": 5.0,
        }
    )
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy(destroy_registry=False)
        # dbos makes its own pool the loop's default, and shuts it down with itself.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        _flow = None


def _prepare(database: Path) -> None:
    """Write-ahead logging is a property of the file, so it is set before dbos opens it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
