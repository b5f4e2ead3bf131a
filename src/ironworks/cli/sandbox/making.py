"""Verbs that make and remove sandboxes: create, fork, rm, gc."""

import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import note, print_json, say
from ironworks.cli.sandbox.options import backend_option, check_backend, seconds, state_option, with_backend
from ironworks.cli.sandbox.using import pairs
from ironworks.core.errors import BusyError, ConflictError, IronworksError, UsageError

if TYPE_CHECKING:
    from ironworks.app.keep import Order
    from ironworks.core.ports import SandboxBackend

AT_ONCE = 8


@click.command("create")
@click.argument("name", required=False)
@click.option("--from", "snapshot", metavar="SNAPSHOT", help="Begin with what this snapshot holds.")
@click.option("--image", default="", metavar="IMAGE", help="What to boot, for a backend of images.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="A variable for every command; may be repeated."
)
@click.option(
    "--mount", multiple=True, metavar="HOST:INSIDE", help="Show a folder of this machine, read-only."
)
@click.option("--allow", multiple=True, metavar="HOST", help="Let it reach this host, or preset such as pip.")
@click.option("--transparent", is_flag=True, help="Programs that ignore proxy variables reach them too.")
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), help="Processors.")
@click.option("--memory", metavar="SIZE", help="Like 512M or 2G.")
@click.option("--pids", type=click.IntRange(min=16), help="Processes.")
@click.option("--disk", metavar="SIZE", help="Like 10G.")
@backend_option
@state_option
@json_option
def create(name: str | None, state: Path | None, as_json: bool, **asked: Any) -> None:
    """Boot a sandbox in the background and print its name.

    By default it is empty, and nothing leads out of it. It runs until `rm` ends it, and belongs to no
    project.
    """
    from ironworks.app.keep import kept

    one = kept(state, name or f"box-{secrets.token_hex(3)}")
    order = _order(one.name, asked)
    if one.order() is not None or one.name in _known(order.backend, one.state):
        hint = f"ironworks sandbox exec {one.name} COMMAND, or remove it: ironworks sandbox rm {one.name}"
        raise ConflictError(f"there is a sandbox {one.name!r} already", hint=hint)
    _make(one.state, [(one.name, order)])
    if as_json:
        print_json({"sandbox": one.name, "backend": order.backend, "state": str(one.state)})
    else:
        say(one.name)


@click.command("fork")
@click.argument("sandbox")
@click.argument("names", nargs=-1)
@click.option("-n", "count", type=click.IntRange(1, 200), help="How many, called SANDBOX-1 and so on.")
@state_option
@json_option
def fork(sandbox: str, names: tuple[str, ...], count: int | None, state: Path | None, as_json: bool) -> None:
    """Make sandboxes that begin with this one's disk as it is now.

    Their names are printed. Its processes go on and are not copied. Give NAMES, or how many with -n; one by
    default.
    """
    from ironworks.app.keep import Order, call, kept
    from ironworks.core.ports import SandboxSpec

    one = kept(state, sandbox)
    if names and count:
        raise UsageError("give names or -n, not both")
    order = one.order() or Order(spec=SandboxSpec(name=one.name))
    known = _known(order.backend, one.state)
    chosen = [kept(state, name).name for name in names] or _free(sandbox, count or 1, known)
    if taken := sorted(set(chosen) & set(known)):
        raise ConflictError(f"there is a sandbox {taken[0]!r} already", hint="choose other names")
    snapshot = f"{sandbox[:80]}-fork-{secrets.token_hex(3)}"
    call(one, "snapshot", name=snapshot, live=True)
    specs = (order.spec.model_copy(update={"name": name, "snapshot": snapshot}) for name in chosen)
    _make(one.state, [(spec.name, order.model_copy(update={"spec": spec})) for spec in specs])
    if as_json:
        print_json({"sandboxes": chosen, "snapshot": snapshot})
    else:
        say("\n".join(chosen))


@click.command("rm")
@click.argument("names", nargs=-1, required=True)
@click.option("--snapshot", is_flag=True, help="The names are those of snapshots.")
@backend_option
@state_option
@json_option
def rm(names: tuple[str, ...], snapshot: bool, backend: str, state: Path | None, as_json: bool) -> None:
    """Remove sandboxes with their disks, or snapshots.

    What runs in a sandbox is ended. A snapshot on which something rests is kept, and named.
    """
    from ironworks.app.keep import kept

    ones = [kept(state, name) for name in names]
    for one in ones:
        if snapshot:
            with_backend(backend, one.state, partial(_drop, one.name))
        else:
            _remove(one.name, backend, one.state)
    if as_json:
        print_json({"removed": list(names)})


@click.command("gc")
@click.option("--older-than", default="7d", metavar="TIME", help="Made longer ago than this; 7d by default.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@backend_option
@state_option
@json_option
def gc(older_than: str, dry_run: bool, backend: str, state: Path | None, as_json: bool) -> None:
    """Remove old sandboxes that do not run, and old snapshots.

    A snapshot goes only when nothing rests on it any more.
    """
    from ironworks.app.keep import state_folder

    folder = state_folder(state)
    _refuse_factory(folder)
    before_s = time.time() - seconds(older_than)
    sandboxes, snapshots = with_backend(backend, folder, lambda found: _garbage(found, before_s))
    if not dry_run:
        for name in sandboxes:
            _remove(name, backend, folder)
        with_backend(backend, folder, lambda found: _collect(found, snapshots))
    if as_json:
        print_json({"sandboxes": sandboxes, "snapshots": snapshots, "dry_run": dry_run})
        return
    for what, gone in (("sandbox", sandboxes), ("snapshot", snapshots)):
        for name in gone:
            say(f"{what} {name}")
    if not sandboxes and not snapshots:
        say(f"nothing to remove that is older than {older_than}")


def _order(name: str, asked: dict[str, Any]) -> "Order":
    from pydantic import ValidationError

    from ironworks.app.keep import Order
    from ironworks.core.ports import Mount, SandboxSpec
    from ironworks.core.settings import SandboxSettings, in_bytes

    mounts = []
    for text in asked["mount"]:
        host, colon, inside = text.rpartition(":")
        if not colon or not inside.startswith("/"):
            raise UsageError(f"{text!r} is no mount", hint="write it as HOST:INSIDE, both absolute")
        mounts.append(Mount(host=str(Path(host).absolute()), inside=inside))
    try:
        sizes = SandboxSettings.model_validate({key: asked[key] for key in ("memory", "disk")})
    except ValidationError as error:
        where = error.errors()[0]["loc"][0]
        raise UsageError(f"{asked[str(where)]!r} is no size", hint="write it like 512M or 2G") from error
    if asked["transparent"] and not asked["allow"]:
        raise UsageError("--transparent without --allow leads nowhere", hint="name hosts with --allow")
    spec = SandboxSpec(
        name=name,
        snapshot=asked["snapshot"],
        image=asked["image"],
        env=pairs(asked["env"]),
        mounts=tuple(mounts),
        cpus=asked["cpus"],
        pids=asked["pids"],
        memory_bytes=in_bytes(sizes.memory),
        disk_bytes=in_bytes(sizes.disk),
        transparent=asked["transparent"],
    )
    return Order(backend=check_backend(asked["backend"]), spec=spec, allow=asked["allow"])


def _make(state: Path, orders: Sequence[tuple[str, "Order"]]) -> None:
    """Boot all of them, or none."""
    from concurrent.futures import ThreadPoolExecutor

    from ironworks.app.keep import Kept, start

    def made(name: str, order: "Order") -> None:
        one = Kept(state, name)
        one.write(order)
        start(one)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        starting = [pool.submit(made, name, order) for name, order in orders]
    failures = [failure for each in starting if (failure := each.exception()) is not None]
    if failures:
        for name, order in orders:
            _remove(name, order.backend, state)
        raise failures[0]


def _known(backend: str, state: Path) -> list[str]:
    async def found(backend: "SandboxBackend") -> list[str]:
        return [each.name for each in await backend.sandboxes()]

    return with_backend(backend, state, found)


def _free(sandbox: str, count: int, known: Sequence[str]) -> list[str]:
    numbers = (f"{sandbox[:90]}-{number}" for number in range(1, count + len(known) + 1))
    return [name for name in numbers if name not in known][:count]


def _remove(name: str, backend: str, state: Path) -> None:
    from ironworks.app.keep import Kept, end, missing

    one = Kept(state, name)
    order = one.order()
    if order is None:
        known = _known(backend, state)
        if name not in known:
            raise missing(name, known)
        _refuse_factory(state)
    end(one)
    with_backend(order.backend if order else backend, state, lambda found: found.destroy(name))
    one.forget()


def _refuse_factory(state: Path) -> None:
    from ironworks.app.place import factory_pid

    if (pid := factory_pid(state)) is not None:
        raise BusyError(f"process {pid} runs a factory on {str(state)!r}, whose sandboxes these are")


async def _drop(name: str, backend: "SandboxBackend") -> None:
    from ironworks.app.keep import missing

    if not await backend.has_snapshot(name):
        raise missing(name, [found.name for found in await backend.snapshots()], "snapshot")
    await backend.remove_snapshot(name)


async def _garbage(backend: "SandboxBackend", before_s: float) -> tuple[list[str], list[str]]:
    """The sandboxes and snapshots to remove, in an order in which that can be done."""
    disks, snapshots = await backend.sandboxes(), await backend.snapshots()
    gone = [disk.name for disk in disks if not disk.running and disk.created_at.timestamp() < before_s]
    needed = {disk.snapshot for disk in disks if disk.name not in gone}
    left, dropped = list(snapshots), []
    while free := [
        each
        for each in left
        if each.name not in needed | {other.below for other in left}
        and each.created_at.timestamp() < before_s
    ]:
        dropped += [each.name for each in free]
        left = [each for each in left if each not in free]
    return gone, dropped


async def _collect(backend: "SandboxBackend", snapshots: Sequence[str]) -> None:
    for name in snapshots:
        try:
            await backend.remove_snapshot(name)
        except IronworksError as error:
            note(f"warning: {error.message}")
    await backend.collect(frozenset(disk.name for disk in await backend.sandboxes()))
