"""What a person should type next, from where the issues stand. Light enough for `status`."""

import shlex
from collections.abc import Sequence

from ironworks.core.states import State, way_out

WORST_FIRST: tuple[State, ...] = ("failed", "parked", "evicted", "landed", "asked")


def next_command(issues: Sequence[tuple[str, State, str]], backlog: str) -> str:
    """From (id, state, reason) of each: go on with unfinished ones, help the worst, else merge or answer."""
    ways = {id: (state, way_out(state, reason)) for id, state, reason in issues}
    if any(way is None for _, way in ways.values()):
        return run_command(backlog)
    for wanted in WORST_FIRST:
        for id, (state, way) in ways.items():
            if way and state == wanted:
                return way.command.format(issue=id)
    return "ironworks status"


def run_command(backlog: str) -> str:
    """The command that goes on with a run's issues."""
    return f"ironworks run --backlog {shlex.quote(backlog)}" if backlog else "ironworks run"
