"""The service as its SDK shows it, with our errors and our patience.

The SDK retries nothing, has one error class, and lets others through. Only what may be done twice is retried.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ironworks.core.errors import ConfigError, MissingError, SandboxError

Result = TypeVar("Result")
KEY_VARIABLE = "UPSTASH_BOX_API_KEY"
WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
BUSY, LOST, CONFLICT = 429, 404, 409
UNREADY = frozenset({"creating", "resuming", "pausing"})
DEAD = frozenset({"error", "deleted", "stopped", "failed"})
READY_TIMEOUT_S = 300.0
POLL_S = 0.5


class Service:
    """One account's boxes under one label. Used from one event loop."""

    def __init__(self, label: str, *, base_url: str = "", api_key: str = "") -> None:
        """`api_key` and `base_url` default to what the SDK's own variables say."""
        # The SDK tells its maker who calls, unless this is set.
        os.environ.setdefault("UPSTASH_DISABLE_TELEMETRY", "1")
        try:
            import httpx
            import upstash_box
        except ImportError as error:
            raise ConfigError(
                "the upstash backend needs the upstash-box package", hint="pip install 'ironworks[upstash]'"
            ) from error
        if not (api_key or os.environ.get(KEY_VARIABLE)):
            raise ConfigError("no key for Upstash Box", hint=f"export {KEY_VARIABLE}")
        self.label = label
        self._sdk = upstash_box
        self._broken = (httpx.HTTPError, ValueError)
        self._account = {key: text for key, text in (("base_url", base_url), ("api_key", api_key)) if text}

    async def boxes(self) -> list[Any]:
        """Every box with our label, `BoxData` each."""
        return list(await self.call(lambda: self._sdk.AsyncBox.list(label=self.label, **self._account)))

    async def open(self, id: str) -> Any:
        """The box, awake or not; MissingError when it is gone."""
        return await self.call(lambda: self._sdk.AsyncBox.get(id, **self._account))

    async def make(self, name: str, snapshot: str | None, config: dict[str, Any]) -> Any:
        """A new box, ready. A failed creation leaves a box: found by its name, it is used or removed."""
        asked = {**config, **self._account, "name": name, "labels": [self.label]}
        make = self._sdk.AsyncBox
        for wait_s in (*WAITS_S, None):
            try:
                if snapshot is None:
                    return await self.call(lambda: make.create(**asked), twice=False)
                return await self.call(lambda: make.from_snapshot(snapshot, **asked), twice=False)
            except SandboxError:
                if (box := await self._left_over(name)) is not None:
                    return box
                if wait_s is None:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def ready(self, box: Any) -> None:
        """Wait until it is neither starting nor on its way to rest."""
        deadline_s = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while (status := await self.status(box)) in UNREADY:
            if asyncio.get_running_loop().time() > deadline_s:
                raise SandboxError(f"the box stays {status}")
            await asyncio.sleep(POLL_S)
        if status in DEAD:
            raise SandboxError(f"the box is {status}")

    async def status(self, box: Any) -> str:
        return str((await self.call(box.get_status))["status"])

    async def delete(self, id: str) -> None:
        """No error when it is gone."""
        try:
            async with contextlib.aclosing(await self.open(id)) as box:
                await self.call(box.delete)
        except MissingError:
            return

    async def snapshot(self, box: Any, name: str) -> Any:
        """Its `Snapshot`, ready."""
        return await self.call(lambda: box.snapshot(name=name), twice=False)

    async def delete_snapshot(self, id: str) -> None:
        """No error when it is gone. The box of which it was taken may be gone as well."""
        with contextlib.suppress(MissingError):
            # Never without an id: that would delete every snapshot of the account.
            await self.call(lambda: self._sdk.AsyncBox.delete_snapshots(snapshot_ids=[id], **self._account))

    async def _left_over(self, name: str) -> Any | None:
        """A box of that name which the failed call has made after all, ready; a dead one is removed."""
        for found in await self.boxes():
            if found.name == name:
                box = await self.open(found.id)
                try:
                    await self.ready(box)
                except SandboxError:
                    await box.aclose()
                    await self.delete(found.id)
                else:
                    return box
        return None

    async def call(self, work: Callable[[], Awaitable[Result]], *, twice: bool = True) -> Result:
        """What `work` answers. Tried again while the service is busy, and after faults if that may be done
        `twice`."""
        for wait_s in (*WAITS_S, None):
            try:
                return await work()
            except self._sdk.BoxError as error:
                failure, again = self._judged(error, twice)
            except self._broken as error:
                failure, again = SandboxError(f"the service gave no sensible answer: {error!r}"[:500]), twice
            if not again or wait_s is None:
                raise failure
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    def _judged(self, error: Any, twice: bool) -> tuple[Exception, bool]:
        """Ours for theirs, and whether to try again."""
        status = error.status_code
        if status in {401, 403}:
            return ConfigError(
                f"Upstash Box refuses the key: {error.message}", hint=f"check {KEY_VARIABLE}"
            ), False
        if status == LOST:
            return MissingError(f"Upstash Box: {error.message}"), False
        if status == BUSY:
            return SandboxError(f"Upstash Box is busy: {error.message}"), True
        again = twice and (status is None or status >= 500)
        return SandboxError(f"Upstash Box: {error.message}"[:500]), again
