"""`ironworks demo`: a backlog becomes merged changes, every trap on the way named as it is caught."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import click

from ironworks.cli.options import PATH, json_option
from ironworks.cli.output import note
from ironworks.core.errors import UsageError


@click.command("demo")
@click.option(
    "--dir", "folder", type=PATH, metavar="DIR", help="Keep everything here; a killed demo goes on."
)
@click.option("--seed", type=click.IntRange(min=1), default=1, help="Another order of issues and events.")
@click.option("--chaos", is_flag=True, help="Add six hostile workers: five more things to be caught.")
@click.option("--live", is_flag=True, help="Use a real model, with your key: this costs money.")
@click.option("--agent", metavar="NAME", help="Which agent works, with --live.")
@click.option("--model", metavar="NAME", help="Which model, with --live.")
@click.option(
    "--budget-usd", type=click.FloatRange(0, min_open=True), metavar="X", help="The cap of --live: 5."
)
@json_option
def command(
    folder: Path | None,
    seed: int,
    chaos: bool,
    live: bool,
    agent: str | None,
    model: str | None,
    budget_usd: float | None,
    as_json: bool,
) -> int:
    """Watch two factories work on ten issues of a small repository, merge what landed, and grade it.

    Real: git, sandboxes, gateway, budgets, suites, verification, merging. Played: the model, by a script on
    this machine, unless --live. Exit code: 0 all is well, 1 something rests, as always with --chaos.
    """
    from ironworks.cli.demo.play import Play, play

    if not live and (agent or model or budget_usd):
        raise UsageError("--agent, --model and --budget-usd go with --live", hint="ironworks demo --live")
    if live and chaos:
        raise UsageError("--chaos needs the scripted model", hint="leave --live out")
    where = (folder or Path(tempfile.mkdtemp(prefix="ironworks-demo-"))).absolute()
    wanted = Play(where, seed, chaos, live, agent or "", model or "", budget_usd or 5.0)
    try:
        return asyncio.run(play(wanted, as_json=as_json, kept=folder is not None))
    except KeyboardInterrupt:
        note("stopped; the same words go on with it" if folder else "stopped; nothing is left of it")
        raise
    finally:
        if folder is None:
            shutil.rmtree(where, ignore_errors=True)
