"""The live view of a run: a table on a terminal, plain lines elsewhere. `run` and `attach` show the same."""

import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ironworks.app.progress import IssueProgress, RunProgress
from ironworks.cli.logs import last_lines
from ironworks.cli.output import clean, dollars, duration, gist, note, short

TAIL_BYTES = 2000
REFRESH_HZ = 4
AT_WORK = frozenset({"triaging", "working", "verifying", "reviewing", "integrating"})
QUIET_KINDS = frozenset({"UsageRecorded", "StageFinished", "WorkCaptured", "IssueClaimed"})


class View:
    """`with View(...) as view: view.apply(...)`. Writes to standard error; `progress` is for anybody."""

    def __init__(self, logs: Path, *, quiet: bool = False) -> None:
        self.progress = RunProgress()
        self._logs = logs
        self._quiet = quiet
        self._message = ""
        console = Console(stderr=True)
        live = console.is_terminal and not quiet
        self._live = (
            Live(get_renderable=self.table, console=console, refresh_per_second=REFRESH_HZ) if live else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def apply(self, at_s: float, event: dict[str, Any]) -> None:
        """Show one more event."""
        self.progress.apply(at_s, event)
        if self._live is None and not self._quiet and event["kind"] not in QUIET_KINDS:
            note(plain_line(at_s, event, self.progress))

    def say(self, message: str) -> None:
        """Show a message below the table, or as a line."""
        self._message = message
        if self._live is None:
            note(message)

    def table(self) -> Group:
        """The whole view, made anew. Where it is narrow, the id and the last line give way."""
        now = time.time()
        table = Table(box=None, pad_edge=False)
        for name in ("issue", "stage", "elapsed", "cost", "last line"):
            table.add_column(name, no_wrap=name not in {"issue", "last line"})
        for issue in list(self.progress.issues.values()):
            last = self._last_line(issue) or issue.title
            cells = (issue.id, _state(issue), duration(now - issue.since_s), dollars(issue.cost_usd), last)
            table.add_row(*(Text(clean(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
        return Group(table, self._caption(now))

    def _caption(self, now: float) -> Text:
        run = self.progress
        words = [run.run, duration(now - run.started_s) if run.started_s else "", dollars(run.cost_usd)]
        words += ["paused" if run.paused else "", run.note, self._message]
        return Text(clean("  ".join(word for word in words if word)))

    def _last_line(self, issue: IssueProgress) -> str:
        """The last thing its agent printed in the present attempt."""
        if issue.state not in AT_WORK:
            return gist(issue.detail, 200)
        folder = self._logs / self.progress.run / issue.id
        try:
            logs = [(path.stat().st_mtime_ns, path) for path in folder.glob(f"{issue.stage}-*/stdout.log")]
            lines = last_lines(max(logs)[1], 0, read_bytes=TAIL_BYTES) if logs else []
        except OSError:
            return ""
        return next((short(line, 200) for line in reversed(lines) if line.strip()), "")


def plain_line(at_s: float, event: dict[str, Any], run: RunProgress) -> str:
    """`12:03:59 fix-login-1a2b working 1`."""
    when = datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%H:%M:%S")
    issue = run.issues.get(event.get("issue", ""))
    if issue is None:
        return f"{when} {_about_run(event, run)}"
    words = [_state(issue)]
    if event["kind"] == "StageStarted":
        words.append(f"(attempt {issue.attempt})")
    elif event["kind"] == "IssueQueued":
        words.append(short(issue.title, 80))
    return f"{when} {issue.id} {' '.join([*words, gist(issue.detail, 200)])}".rstrip()


def _about_run(event: dict[str, Any], run: RunProgress) -> str:
    if event["kind"] == "RunStarted":
        return f"{event['run']} on {event['repository']}, base {event['base']}"
    if event["kind"] == "RunFinished":
        return f"{event['run']} {'stopped' if event['stopped'] else 'finished'}"
    if event["kind"] == "EgressDenied":
        return f"no way out to {event['target']}: {event['reason']}"
    return run.note if event["kind"] in {"BaseSnapshotMade", "BaselineTaken"} else str(event["kind"])


def _state(issue: IssueProgress) -> str:
    text = f"{issue.state} ({short(issue.reason, 30)})" if issue.reason else issue.state
    return f"{text} [paused]" if issue.paused else text
