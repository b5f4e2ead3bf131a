"""Starts a run that outlives the terminal, and returns once it has really begun."""

import subprocess
import sys
import time
from pathlib import Path

from ironworks.app.place import Place, factory_pid, make_state
from ironworks.cli.logs import last_lines
from ironworks.cli.options import suggestion
from ironworks.cli.output import note, print_json, say
from ironworks.core.errors import BusyError, StoreError
from ironworks.store.reader import Reader

START_TIMEOUT_S = 120.0
POLL_S = 0.1


def detached(place: Place, backlog: Path, options: list[str], as_json: bool) -> int:
    """Start the same run in a session of its own, its output in STATE/logs/run.log; the exit code.

    BusyError when a factory runs there already; the child's own exit code when it ends before it has begun.
    """
    pid = factory_pid(place.state)
    if pid is not None:
        raise BusyError(
            f"process {pid} already runs a factory on {str(place.state)!r}",
            hint=suggestion("ironworks attach", place),
        )
    make_state(place)
    log = place.logs / "run.log"
    where = ["--repository", str(place.root), "--state", str(place.state), "--backlog", str(backlog)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "ironworks", "run", *where, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    run = _await_start(place, child)
    if run is None:
        note("\n".join(last_lines(log, 40)))
        return child.returncode or 3
    attach = suggestion("ironworks attach", place)
    if as_json:
        print_json({"run": run, "pid": child.pid, "log": str(log), "next": attach})
    else:
        say(f"{run} goes on in the background (process {child.pid}), log: {log}\nnext: {attach}")
    return 0


def _await_start(place: Place, child: "subprocess.Popen[bytes]") -> str | None:
    """The id of the run that `child` has recorded as its own; None when it ended first."""
    reader = Reader(place.database)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = child.poll() is not None
        for row in reversed(reader.rows(issue="")):
            if row.event.get("kind") == "RunStarted" and row.event.get("pid") == child.pid:
                return str(row.event["run"])
        if ended:
            return None
        time.sleep(POLL_S)
    child.terminate()
    raise StoreError(f"the run did not begin within {START_TIMEOUT_S:g} s; it was stopped")
