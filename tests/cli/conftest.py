from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.app.ground import repository

from ironworks.app.place import Place, find_place
from ironworks.cli import main
from ironworks.core import events as ev
from ironworks.core.events import Event
from ironworks.core.models import Issue, Usage
from ironworks.store.store import Store

SHA = "a" * 40


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that neither trust nor configuration of the developer is seen or changed."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A repository with a backlog, in which we are."""
    root = repository(tmp_path / "r", {"backlog.md": "- [ ] fix it\n"})
    monkeypatch.chdir(root)
    return find_place(root)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process."""

    def call(*args: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        captured = capsys.readouterr()
        return Said(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def history(place: Place) -> Callable[..., None]:
    """Writes events into the place's store."""

    def record(*events: Event) -> None:
        store = Store(place.database)
        for number, event in enumerate(events, store.last_seq()):
            store.append(event, key=f"key-{number}")
        store.close()

    return record


def started(**fields: Any) -> Event:
    values: dict[str, Any] = {"run": "run-1", "repository": "/r", "base": "main", "pid": 1}
    return ev.RunStarted(**values | fields)


def queued(issue: str, title: str = "A title", run: str = "run-1") -> Event:
    return ev.IssueQueued(
        run=run, issue=issue, snapshot=Issue(id=issue, title=title, body="The body.", source="b.md:1")
    )


def working(issue: str, run: str = "run-1") -> list[Event]:
    return [
        queued(issue, run=run),
        ev.IssueClaimed(run=run, issue=issue, epoch=1, commit=SHA),
        ev.StageStarted(run=run, issue=issue, stage="work", attempt=1),
        ev.UsageRecorded(
            run=run, issue=issue, attempt_key="k", usage=Usage(provider="p", model="m", cost_usd=1.25)
        ),
    ]


def parked(issue: str, run: str = "run-1") -> list[Event]:
    return [
        *working(issue, run),
        ev.IssueParked(run=run, issue=issue, reason="looping", detail="round it goes"),
    ]


def ended(code: int = 1, run: str = "run-1") -> Event:
    return ev.RunFinished(run=run, exit_code=code)
