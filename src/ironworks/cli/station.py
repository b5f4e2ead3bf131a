"""What the stations share: one stage of the factory, used by itself on any repository."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ironworks.cli.options import place_of
from ironworks.core.errors import RefusedError

if TYPE_CHECKING:
    from ironworks.engine.factory import Factory

Handoff = TypeVar("Handoff")


def at_station(
    work: "Callable[[Factory], Awaitable[Handoff]]",
    *,
    config: Path | None,
    repository: Path | None,
    state: Path | None,
    asks: bool = True,
) -> Handoff:
    """Open a factory without a backlog, let it do `work`, close it; what came of it.

    `asks`: an agent may be needed for it. RefusedError when its agent gave no answer.
    """
    from ironworks.app.factory import Options, open_factory
    from ironworks.cli.loading import loaded_for
    from ironworks.engine.line import Parked

    place = place_of(repository, state)
    loaded = loaded_for(place, config, asks=asks)

    async def opened() -> Handoff:
        async with open_factory(place, loaded, Options()) as factory:
            try:
                return await work(factory)
            except Parked as rest:
                raise RefusedError(f"no answer came of it: {rest.reason}: {rest.detail}") from rest

    return asyncio.run(opened())
