"""Verbs that look: ls, doctor."""

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import columns, duration, print_json, say
from ironworks.cli.sandbox.options import backend_option, megabytes, state_option, with_backend

if TYPE_CHECKING:
    from ironworks.core.ports import SandboxBackend, SandboxInfo, SnapshotInfo


@click.command("ls")
@backend_option
@state_option
@json_option
def ls(backend: str, state: Path | None, as_json: bool) -> None:
    """List sandboxes and snapshots, with their size and age.

    FROM is what one rests on; USED BY counts what rests on a snapshot. Nothing is booted.
    """
    from ironworks.app.keep import state_folder

    async def look(found: "SandboxBackend") -> "tuple[list[SandboxInfo], list[SnapshotInfo]]":
        return await found.sandboxes(), await found.snapshots()

    sandboxes, snapshots = with_backend(backend, state_folder(state), look)
    if as_json:
        print_json(
            {
                "sandboxes": [each.model_dump(mode="json") for each in sandboxes],
                "snapshots": [each.model_dump(mode="json") for each in snapshots],
            }
        )
        return
    if not sandboxes and not snapshots:
        say("nothing yet\nnext: ironworks sandbox create")
        return
    rows = [("SANDBOX", "STATE", "FROM", "SIZE", "AGE")]
    for box in sandboxes:
        running = "running" if box.running else "stopped"
        rows.append((box.name, running, box.snapshot or "", megabytes(box.disk_bytes), _age(box.created_at)))
    users = [box.snapshot for box in sandboxes] + [snapshot.below for snapshot in snapshots]
    more = [("SNAPSHOT", "USED BY", "FROM", "SIZE", "AGE")]
    for shot in snapshots:
        used = str(users.count(shot.name))
        more.append((shot.name, used, shot.below or "", megabytes(shot.disk_bytes), _age(shot.created_at)))
    say("\n\n".join(columns(table) for table in (rows, more) if len(table) > 1))


@click.command("doctor")
@backend_option
@state_option
@json_option
def doctor(backend: str, state: Path | None, as_json: bool) -> int:
    """Try what a backend can do here; name the fix for the rest.

    Exit code: 0 it can make sandboxes, 2 it cannot.
    """
    from ironworks.app.keep import state_folder
    from ironworks.core.ports import Capability

    async def examine(found: "SandboxBackend") -> "tuple[list[dict[str, object]], list[str]]":
        return [check.model_dump() for check in found.doctor()], sorted(found.capabilities())

    checks, here = with_backend(backend, state_folder(state), examine)
    works = "create" in here
    if as_json:
        print_json({"ok": works, "backend": backend, "checks": checks, "capabilities": here})
        return 0 if works else 2
    for check in checks:
        say(f"{'ok     ' if check['ok'] else 'MISSING'}  {check['name']}: {check['detail']}")
        if not check["ok"]:
            say(f"         fix: {check['fix']}")
    say(f"can:    {', '.join(here) or 'nothing'}")
    lacking = [name for name in get_args(Capability) if name not in here]
    say(f"cannot: {', '.join(lacking) or '-'}")
    return 0 if works else 2


def _age(made: datetime) -> str:
    seconds_ago = time.time() - made.timestamp()
    return f"{seconds_ago / 86400:.0f}d" if seconds_ago > 2 * 86400 else duration(seconds_ago)
