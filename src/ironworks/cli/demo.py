"""`ironworks demo`: three issues become landed and merged changes, with a model that plays a script."""

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import dollars, duration, print_json, say, short
from ironworks.core.errors import UsageError
from ironworks.core.events import Event, Recorded, StageFinished, WorkCaptured
from ironworks.core.report import RunReport

INTRODUCTION = """\
Three issues of a small bundled repository become pull requests, land on one branch, and are merged.
Real: git, sandboxes, gateway, budgets, test suites, verification, merging. Played: the model, by a script
on this machine. No key is needed, nothing leaves this machine, nothing is spent.
"""


@click.command("demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Keep everything here.")
@json_option
def command(folder: Path | None, as_json: bool) -> int:
    """Watch three issues become merged changes; the traps on the way are named as they are caught."""
    kept = folder is not None
    where = folder or Path(tempfile.mkdtemp(prefix="ironworks-demo-"))
    if kept and where.exists() and any(where.iterdir()):
        raise UsageError(f"{where} is not empty", hint="name a new folder")
    try:
        return asyncio.run(_play(where.absolute(), as_json=as_json, kept=kept))
    finally:
        if not kept:
            shutil.rmtree(where, ignore_errors=True)


async def _play(where: Path, *, as_json: bool, kept: bool) -> int:
    from ironworks.app.base import base_reader
    from ironworks.app.configuration import load
    from ironworks.app.factory import Options, open_factory
    from ironworks.app.place import find_place
    from ironworks.testing.model import ScriptedModel
    from ironworks.testing.till.repository import make_repository, write_configuration
    from ironworks.testing.till.script import script

    if not as_json:
        say(INTRODUCTION)
    repository = make_repository(where / "till")
    narrator = Narrator(quiet=as_json)
    async with ScriptedModel(script()) as model:
        place = find_place(repository, where / "state")
        config = write_configuration(where / "operator" / "config.toml", model.base_url)
        loaded = load(place, base_reader(place.root), file=config)
        async with open_factory(place, loaded, Options(backlog=repository / "backlog.md")) as factory:
            report = await factory.run(watch=narrator)
            merged = await asyncio.to_thread(_merge, factory.parts) if report.exit_code == 0 else None
    if as_json:
        print_json({"report": report.model_dump(mode="json"), "caught": narrator.caught, "merged": merged})
    else:
        _conclude(report, narrator, merged, repository, kept=kept)
    return report.exit_code


def _merge(parts: Any) -> str:
    """The human's part, which the factory itself cannot do."""
    from ironworks.app.merge import merge_pull
    from ironworks.core.policy import INTEGRATION_PULL

    return merge_pull(parts.forge, parts.depot, INTEGRATION_PULL).commit


class Narrator:
    """Tells each event in a line, and remembers what was caught by whom."""

    def __init__(self, *, quiet: bool) -> None:
        self.caught: list[str] = []
        self._quiet = quiet
        self._began = time.monotonic()

    def __call__(self, recorded: Recorded) -> None:
        event = recorded.event
        line = told(event)
        if line and not self._quiet:
            at = time.monotonic() - self._began
            say(f"{at:6.1f}s  {short(event.issue.rpartition('-')[0] or 'run', 36):36}  {line}")
        self.caught += [f"{event.issue.rpartition('-')[0]}: {catch}" for catch in catches(event)]


def told(event: Event) -> str:
    """One line for an event worth telling; empty otherwise."""
    if isinstance(event, StageFinished):
        seconds = f"{event.duration_s:.1f}s"
        cost = f", {dollars(event.cost_usd)} by list price" if event.cost_usd else ""
        return f"{event.stage} {event.attempt}: {event.outcome} ({seconds}{cost})"
    return {
        "BaseSnapshotMade": "base snapshot made",
        "BaselineTaken": "baseline taken: what fails already is nobody's fault",
        "IssueClaimed": "claimed",
        "PullRequestOpened": "pull request opened",
        "IssueLanded": "landed on ironworks/integration, suite green",
    }.get(event.kind, "")


def catches(event: Event) -> list[str]:
    """What an event shows to have been caught."""
    if isinstance(event, WorkCaptured) and event.ghost:
        return ["the worker left work uncommitted: captured, nothing lost"]
    if not isinstance(event, StageFinished):
        return []
    if event.stage == "verify":
        found = event.handoff.get("findings", [])
        return [f"the verifier: {item['message']}" for item in found if item["code"] == "claim-contradicted"]
    if event.stage == "review" and event.outcome == "request_changes":
        return [f"the reviewer: {item['claim']}" for item in event.handoff.get("findings", [])]
    if event.stage == "integrate" and event.handoff.get("conflicts", {}).get("agent"):
        return ["the integrator: two branches conflicted; resolved by an agent, proved, suite green"]
    return []


def _conclude(
    report: RunReport, narrator: Narrator, merged: str | None, repository: Path, *, kept: bool
) -> None:
    say("\nCaught on the way:")
    for catch in narrator.caught:
        say(f"  - {catch}")
    landed = len(report.integration.merged)
    say(
        f"\n{landed} of {len(report.issues)} issues landed in {duration(report.wall_s)}, "
        f"{report.integration.suite_runs} suite runs while integrating;\n"
        f"a real model would have cost {dollars(report.cost_usd)} by list price."
    )
    if merged:
        say(f"Then the human's part: `ironworks pr merge integration` moved main to {merged[:12]}.")
    if kept:
        say(f"\nLook around: git -C {repository} log --graph --oneline main")
    else:
        say("\nYours next: go to a repository of your own and type")
        if found := off_path():
            say(f'  export PATH="{found}:$PATH"')
        say("  ironworks init")


def off_path() -> str:
    """The folder of the program `ironworks` when a shell would not find it there; empty when it would."""
    mine = Path(sys.executable).parent
    return "" if shutil.which("ironworks") or not (mine / "ironworks").is_file() else str(mine)
