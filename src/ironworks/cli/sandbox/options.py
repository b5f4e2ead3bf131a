"""What the verbs of `ironworks sandbox` share."""

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ironworks.cli.options import PATH
from ironworks.core.errors import UsageError

if TYPE_CHECKING:
    from ironworks.core.ports import SandboxBackend

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def state_option(function: Function) -> Function:
    """`--state`, as the parameter `state`."""
    help = "Where they are kept; by default one folder of yours for all that were made by hand."
    return click.option("--state", type=PATH, metavar="DIR", help=help)(function)


def backend_option(function: Function) -> Function:
    """`--backend`, as the parameter `backend`."""
    help = "What makes the sandboxes: `local` by default."
    return click.option("--backend", default="local", metavar="NAME", help=help)(function)


def check_backend(name: str) -> str:
    """`name`; UsageError, with what there is, for an unknown one."""
    from ironworks.app.backend import BACKENDS
    from ironworks.cli.output import closest

    if name not in BACKENDS:
        hint = closest(name, BACKENDS) or f"there are {', '.join(BACKENDS)}"
        raise UsageError(f"there is no backend {name!r}", hint=hint)
    return name


def with_backend(
    name: str, state: Path, work: "Callable[[SandboxBackend], Coroutine[Any, Any, Result]]"
) -> Result:
    """What `work` comes to with a backend that is open for it."""
    import asyncio

    from ironworks.app.backend import make_backend
    from ironworks.core.settings import SandboxSettings

    async def opened() -> Result:
        backend = make_backend(SandboxSettings.model_validate({"backend": check_backend(name)}), state)
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(opened())


def seconds(text: str) -> float:
    """`90s`, `15m`, `12h`, `7d` in seconds; UsageError for anything else."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text)
    if found is None:
        raise UsageError(f"{text!r} is no length of time", hint="write it like 90s, 15m, 12h or 7d")
    return float(found[1]) * UNITS_S.get(found[2], 1)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
