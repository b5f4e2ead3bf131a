"""`ironworks stop`: pull the cord."""

import os
import signal
import time
from pathlib import Path

import click

from ironworks.app.control import send
from ironworks.app.place import Place, factory_pid
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import print_json, say

POLL_S = 0.1


@click.command("stop")
@click.option("--now", is_flag=True, help="Do not wait for captures; the sandboxes' disks keep the work.")
@click.option(
    "--wait-s", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Patience, in seconds."
)
@place_options
@json_option
def command(now: bool, wait_s: float, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Stop the running factory and wait until it has ended. The next `ironworks run` goes on from there."""
    place = place_of(repository, state)
    pid = factory_pid(place.state)
    if pid is not None:
        _ask(place, pid, now)
    ended = _wait(place, wait_s)
    if as_json:
        print_json({"running": pid is not None, "stopped": ended})
    elif pid is None:
        say(f"no factory runs for {place.root}")
    elif ended:
        say("stopped")
    else:
        say(f"process {pid} is still stopping\nnext: {suggestion('ironworks stop --now', place)}")
    return 0 if ended else 1


def _ask(place: Place, pid: int, now: bool) -> None:
    """Over the socket; by signal when nobody answers there, as while the factory still starts."""
    if send(place.socket, "stop", now=now) is None and pid:
        os.kill(pid, signal.SIGTERM)


def _wait(place: Place, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while factory_pid(place.state) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
