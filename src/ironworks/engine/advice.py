"""What a person should type next, from where the issues stand. Light enough for `status`."""

import shlex
from collections.abc import Sequence

from ironworks.core.states import State, way_out

ALREADY_LANDED = "pull request already landed"
"""As policy says it; policy itself would cost `status` its quick start."""
WORST_FIRST: tuple[State, ...] = ("failed", "parked", "evicted", "landed", "asked")


def next_command(issues: Sequence[tuple[str, State, str]], backlog: str) -> str:
    """From (id, state, reason) of each: go on with unfinished ones, help the worst, else merge or answer."""
    standing = [(id, *_standing(state, reason)) for id, state, reason in issues]
    ways = {id: (state, way_out(state, reason)) for id, state, reason in standing}
    if any(way is None for _, way in ways.values()):
        return run_command(backlog)
    for wanted in WORST_FIRST:
        for id, (state, way) in ways.items():
            if way and state == wanted:
                return way.command.format(issue=id)
    return "ironworks status"


def _standing(state: State, reason: str) -> tuple[State, str]:
    """What an earlier run has landed is left out of this one, and waits to be merged all the same."""
    return ("landed", "") if (state, reason) == ("skipped", ALREADY_LANDED) else (state, reason)


def run_command(backlog: str) -> str:
    """The command that goes on with a run's issues."""
    return f"ironworks run --backlog {shlex.quote(backlog)}" if backlog else "ironworks run"
