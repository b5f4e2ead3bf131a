"""Several sandboxes out of one: they begin with its disk, its processes are its own."""

import asyncio
from collections.abc import Sequence

from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec


async def fork(
    backend: SandboxBackend, sandbox: Sandbox, specs: Sequence[SandboxSpec], *, snapshot: str
) -> list[Sandbox]:
    """Boot `specs` from what is on the disk of `sandbox` now, kept as `snapshot`; it goes on meanwhile.

    All or none: when one cannot be made the others are destroyed. CapabilityError without `live_snapshot`.
    """
    await backend.snapshot(sandbox, snapshot, live=True)
    booting = [backend.create(spec.model_copy(update={"snapshot": snapshot})) for spec in specs]
    results = await asyncio.gather(*booting, return_exceptions=True)
    made = [result for result in results if not isinstance(result, BaseException)]
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        await asyncio.gather(*(backend.destroy(one.name) for one in made), return_exceptions=True)
        raise failures[0]
    return made
