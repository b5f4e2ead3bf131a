"""What one sandbox may do through the gateway, and what it is offered there."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import Field

from ironworks.core.models import Model

Tools = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""`POST /tools/<verb>` from inside: verb and JSON body in, status and body out."""


class Grant(Model):
    """Permissions of one listener. Nothing that is not written here is allowed."""

    key: str
    """Unique attempt key: spending is booked under it."""
    run: str
    issue: str
    stage: str
    issue_cap_usd: Annotated[float, Field(gt=0)]
    run_cap_usd: Annotated[float, Field(gt=0)] | None = None
    day_cap_usd: Annotated[float, Field(gt=0)] | None = None
    models: bool = False
    """Whether it may talk to the providers."""
    allow: tuple[str, ...] = ()
    """Host rules and presets, the whole list for this sandbox: `AllowList` says how they are written."""
