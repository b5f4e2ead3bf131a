import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.conftest import SHA, queued, started

from ironworks.cli.table import View
from ironworks.core import events as ev
from ironworks.core.events import Event

LONG = "counting-words-is-wrong-when-there-are-two-spaces-4c257855"


def shown(view: View, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(view.table())
    return file.getvalue()


def fed(view: View, *events: Event) -> View:
    for event in events:
        view.apply(1.0, event.model_dump(mode="json"))
    return view


@pytest.mark.spec("CLI-17")
def test_on_a_narrow_terminal_stage_time_and_cost_stay_whole(tmp_path: Path) -> None:
    working = ev.StageStarted(run="run-1", issue=LONG, stage="work", attempt=1)
    claimed = ev.IssueClaimed(run="run-1", issue=LONG, epoch=1, commit=SHA)
    view = fed(View(tmp_path, quiet=True), started(), queued(LONG, "A long title " * 20), claimed, working)
    log = tmp_path / "run-1" / LONG / "work-1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("a long line " * 30)
    for width in (70, 90, 110):
        head, row, *_ = shown(view, width).splitlines()
        assert head.split() == ["issue", "stage", "elapsed", "cost", "last", "line"]
        assert "working" in row
        assert "a long" in row
        assert "$0.00" in row
        assert len(row) <= width


def test_while_the_base_is_prepared_the_view_says_so(tmp_path: Path) -> None:
    assert "making the base snapshot" in shown(fed(View(tmp_path, quiet=True), started()), 90)


def test_a_way_out_that_policy_denies_is_told_with_its_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = ev.EgressDenied(run="run-1", target="evil.example:443", reason="not allowed")
    fed(View(tmp_path), denied)
    assert "no way out to evil.example:443: not allowed" in capsys.readouterr().err
