"""`ironworks logs`: what an agent printed, made harmless for a terminal."""

from pathlib import Path
from typing import Any

import click

from ironworks.app.place import Place
from ironworks.cli.options import json_option, place_of, place_options
from ironworks.cli.output import print_json, say
from ironworks.cli.records import issue_rows
from ironworks.core.errors import MissingError
from ironworks.store.reader import Reader

STAGES = ("triage", "work", "verify", "review", "resolve", "integrate")
READ_BYTES = 8_000_000


@click.command("logs")
@click.argument("issue")
@click.option(
    "--stage", type=click.Choice(STAGES), help="Only this stage; by default the newest attempt of any."
)
@click.option(
    "--tail", type=click.IntRange(min=0), default=200, show_default=True, help="Lines shown; 0 = all."
)
@place_options
@json_option
def command(
    issue: str, stage: str | None, tail: int, repository: Path | None, state: Path | None, as_json: bool
) -> None:
    """Show what the newest attempt printed; --json lists every attempt's files instead."""
    place = place_of(repository, state)
    issue_rows(Reader(place.database), place, issue)
    attempts = attempt_folders(place, issue, stage)
    if as_json:
        print_json([_described(folder) for folder in attempts])
        return
    if not attempts:
        raise MissingError(
            f"no agent has printed anything for {issue}{f' in {stage}' if stage else ''} yet",
            hint=f"ironworks show {issue}",
        )
    for name in ("stdout.log", "stderr.log"):
        lines = last_lines(attempts[-1] / name, tail)
        if lines:
            say(f"== {attempts[-1] / name}")
            say("\n".join(lines))


def attempt_folders(place: Place, issue: str, stage: str | None = None) -> list[Path]:
    """`logs/<run>/<issue>/<stage>-<attempt>` folders of an issue that is known to exist, oldest first."""
    found = [path for path in place.logs.glob(f"*/{issue}/*") if path.is_dir()]
    mine = [path for path in found if stage is None or path.name.partition("-")[0] == stage]
    return sorted(mine, key=lambda path: path.stat().st_mtime_ns)


def last_lines(path: Path, count: int, *, read_bytes: int = READ_BYTES) -> list[str]:
    """The last `count` lines (0 = all) of the last bytes of a log; none if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - read_bytes))
            lines = file.read(read_bytes).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:] if count else lines


def _described(folder: Path) -> dict[str, Any]:
    stage, _, attempt = folder.name.partition("-")
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    return {
        "run": folder.parent.parent.name,
        "stage": stage,
        "attempt": attempt,
        "folder": str(folder),
        "files": files,
    }
