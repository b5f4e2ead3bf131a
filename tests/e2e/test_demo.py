"""The demo, as a newcomer starts it: ten issues in, nine merged changes out, every trap named."""

import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ironworks.agents.claude_code import CLAUDE_CODE
from ironworks.agents.program import programs_folder
from ironworks.cli.demo.comparison import REFERENCE, differences, summary
from ironworks.core.errors import ConfigError
from ironworks.core.report import IssueReport, RunReport
from ironworks.sandbox.local.cgroup import Cgroups
from ironworks.store.reader import Reader
from ironworks.testing.demo.cast import Cast
from ironworks.testing.model import ScriptedModel

TIMEOUT_S = 400
PLANTED = {
    ("verifier", "claim-contradicted", "the-first-link-has-no-code"),
    ("capture", "ghost-commit", "a-link-can-lead-to-a-script"),
    ("baseline", "known-failing", "the-same-address-gets-two-codes"),
    ("verifier", "out-of-scope", "a-mistyped-code-counts-as-a-click"),
    ("reviewer", "reproduced", "list-the-newest-links-first"),
    ("gateway", "egress-denied", "say-how-old-a-link-is"),
    ("triage", "asked", "make-it-feel-more-modern"),
}
"""By whom, as what, at which issue."""


class Stage:
    """A folder for a demo, and the command line that plays it there."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder / "demo"
        self.home = folder / "home"
        self.home.mkdir()
        self.seed = seed

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ironworks", "demo", "--dir", str(self.folder), *words]
        kept = ("PATH", "LANG", "PIP_CERT", "SSL_CERT_FILE", "PIP_INDEX_URL", "XDG_DATA_HOME")
        own = {name: os.environ[name] for name in kept if name in os.environ}
        return subprocess.Popen(
            [*command, "--seed", str(self.seed)],
            env={**own, "HOME": str(self.home), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, *words: str, **env: str) -> tuple[int, str, str]:
        process = self.start(*words, **env)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"the demo did not end:\n{out[-3000:]}\n{err[-3000:]}") from None
        return process.returncode, out, err

    def report(self, *words: str) -> dict[str, Any]:
        code, out, err = self.play("--json", *words)
        assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
        document: dict[str, Any] = json.loads(out)
        return document

    def claimed(self) -> Counter[tuple[int, str]]:
        """How often each factory claimed each issue."""
        return Counter(
            (number, row.event["issue"])
            for number in (1, 2)
            for row in Reader(self.folder / f"state-{number}" / "ironworks.db").rows()
            if row.event["kind"] == "IssueClaimed" and row.event["issue"] != "integrator"
        )

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder / "tiny-links",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()


def slug(issue: str) -> str:
    return issue.rpartition("-")[0]


def outcome(document: dict[str, Any]) -> dict[str, Any]:
    """What must be the same however often the demo was killed."""
    report = document["report"]
    return {
        "states": {slug(issue["id"]): issue["state"] for issue in report["issues"]},
        "merged": sorted(slug(landing["issue"]) for landing in report["integration"]["merged"]),
        "hidden": [(grade["passed"], grade["total"]) for grade in document["grades"]],
        "exit_code": report["exit_code"],
    }


def check(stage: Stage, document: dict[str, Any]) -> None:
    """Everything the demo promises."""
    report = document["report"]
    states = Counter(issue["state"] for issue in report["issues"])
    assert states == {"landed": 9, "asked": 1}
    caught = {(catch["by"], catch["code"], slug(catch["issue"])) for catch in report["caught"]}
    assert caught >= PLANTED
    conflicting = [catch for catch in report["caught"] if catch["code"] == "conflict-agent"]
    assert len(conflicting) >= 6
    assert [(grade["passed"], grade["total"]) for grade in document["grades"]] == [(0, 9), (9, 9)]
    assert document["merged"] == stage.git("rev-parse", "main") == document["grades"][1]["commit"]
    claimed = stage.claimed()
    assert len(claimed) == 10, "an issue was worked on by two factories"
    assert {number for number, _ in claimed} == {1, 2}
    assert 0 < report["critical_path_s"] < report["wall_s"] < report["serial_s"]
    scripted = json.loads(REFERENCE.read_text("utf-8"))
    assert summary(RunReport.model_validate(report))["issues"] == scripted["issues"]
    assert report["cost_usd"] == pytest.approx(scripted["cost_usd"], rel=0.1)


@pytest.mark.slow
@pytest.mark.timeout(450)
@pytest.mark.spec("DM-1", "DM-2", "EN-8", "EG-23")
@pytest.mark.parametrize("seed", range(1, 6))
def test_nine_of_ten_land_and_every_trap_is_named(tmp_path: Path, seed: int) -> None:
    stage = Stage(tmp_path, seed)
    document = stage.report()
    check(stage, document)
    assert stage.report() == document, "what is over is told again"


@pytest.mark.soak
@pytest.mark.timeout(450)
@pytest.mark.parametrize("seed", range(6, 31))
def test_any_order_of_issues_and_events_ends_the_same(tmp_path: Path, seed: int) -> None:
    stage = Stage(tmp_path, seed)
    check(stage, stage.report())


def killed_at(stage: Stage, after_s: float, *words: str, **env: str) -> bool:
    """Start the demo and kill it with all it started; False when it had ended before."""
    process = stage.start(*(words or ("--json",)), **env)
    try:
        process.communicate(timeout=after_s)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True


def play_through_kills(stage: Stage, moments: int, rng: random.Random) -> dict[str, Any]:
    """The outcome after as many kills, at random moments, so early that it is never over before."""
    for _ in range(moments):
        assert killed_at(stage, rng.uniform(2, 14)), "the demo was over before it was killed"
    document = stage.report()
    check_after_kills(stage, document)
    return document


def check_after_kills(stage: Stage, document: dict[str, Any]) -> None:
    assert outcome(document) == {
        "states": {
            slug(issue["id"]): "asked" if slug(issue["id"]) == "make-it-feel-more-modern" else "landed"
            for issue in document["report"]["issues"]
        },
        "merged": sorted(
            slug(issue["id"])
            for issue in document["report"]["issues"]
            if slug(issue["id"]) != "make-it-feel-more-modern"
        ),
        "hidden": [(0, 9), (9, 9)],
        "exit_code": 0,
    }
    assert len(document["report"]["issues"]) == 10
    assert document["merged"] == stage.git("rev-parse", "main")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("DM-3")
@pytest.mark.parametrize("moment_s", [5, 14, 25])
def test_a_demo_that_is_killed_goes_on_and_ends_the_same(tmp_path: Path, moment_s: int) -> None:
    stage = Stage(tmp_path)
    assert killed_at(stage, moment_s + random.Random(moment_s).random())
    time.sleep(0.5)  # What died with it is gone from the process table.
    check_after_kills(stage, stage.report())


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(10))
def test_a_demo_that_is_killed_again_and_again_ends_the_same(tmp_path: Path, seed: int) -> None:
    play_through_kills(Stage(tmp_path), 3, random.Random(seed))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("DM-3")
def test_a_demo_that_is_interrupted_says_so_and_keeps_no_factory_from_going_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    process = stage.start()
    assert process.stdout is not None
    for line in process.stdout:
        if "claimed" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err.strip() == "stopped; the same words go on with it"
    assert not list(stage.folder.glob("factory-*.json"))


@pytest.mark.spec("DM-9")
def test_a_second_demo_in_the_same_folder_is_told_and_touches_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.folder.mkdir()
    descriptor = os.open(stage.folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        code, _, err = stage.play()
    finally:
        os.close(descriptor)
    assert code == 2 and "another demo is at work" in err
    assert not any(stage.folder.iterdir())


@pytest.mark.spec("DM-9")
@pytest.mark.parametrize("mark", [b"\xff\xfe", b'{"seed": 2}', b""])
def test_a_mark_that_is_not_ours_is_told(tmp_path: Path, mark: bytes) -> None:
    stage = Stage(tmp_path)
    stage.folder.mkdir()
    (stage.folder / "demo.json").write_bytes(mark)
    code, _, err = stage.play()
    assert code == 2 and "holds another demo" in err


@pytest.mark.spec("DM-9")
def test_what_is_no_folder_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.folder.touch()
    code, _, err = stage.play()
    assert code == 2 and "cannot be used" in err


@pytest.mark.spec("DM-9")
def test_the_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.folder.mkdir()
    (stage.folder / "mine").touch()
    code, _, err = stage.play()
    assert code == 2 and "is not empty" in err
    assert [path.name for path in stage.folder.iterdir()] == ["mine"]


@pytest.mark.slow
@pytest.mark.timeout(450)
@pytest.mark.spec("DM-4")
def test_in_chaos_the_hostile_are_caught_and_the_others_land(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    code, out, err = stage.play("--chaos", "--json")
    assert code == 1, f"{out[-3000:]}\n{err[-3000:]}"
    document = json.loads(out)
    report = document["report"]
    rests = {slug(issue["id"]): (issue["state"], issue["reason"]) for issue in report["issues"]}
    scripted = json.loads(REFERENCE.read_text("utf-8"))["issues"]
    assert {name: state for name, (state, _) in rests.items() if name in scripted} == {
        name: entry["state"] for name, entry in scripted.items()
    }
    assert {name: rest for name, rest in rests.items() if name not in scripted} == {
        "make-it-ten-times-faster": ("parked", "over_budget"),
        "tidy-up-all-of-it": ("parked", "stalled"),
        "use-every-processor": ("parked", "needs_input"),
        "say-how-often-it-is-used": ("parked", "needs_input"),
        "rename-the-project": ("parked", "attempts"),
        "log-everything": ("parked", "needs_input"),
    }
    caught = {(catch["by"], catch["code"], slug(catch["issue"])) for catch in report["caught"]}
    assert caught >= PLANTED | {
        ("budget", "over-budget", "make-it-ten-times-faster"),
        ("watchdog", "stalled", "tidy-up-all-of-it"),
        ("gateway", "egress-denied", "say-how-often-it-is-used"),
        ("verifier", "empty", "rename-the-project"),
        ("sandbox", "limit-output", "log-everything"),
    }
    if "pids_limit" in Cgroups("ironworks-test").capabilities():
        assert ("sandbox", "limit-pids", "use-every-processor") in caught
    spent = {slug(issue["id"]): issue["cost_usd"] for issue in report["issues"]}
    assert 2.5 < spent["make-it-ten-times-faster"] <= 3.0
    assert [(grade["passed"], grade["total"]) for grade in document["grades"]] == [(0, 9), (9, 9)]


@pytest.fixture
async def provider() -> AsyncIterator[dict[str, str]]:
    """The scripted model, posing as a provider: the variables that lead there."""
    async with ScriptedModel(Cast(pace_s=0.3)) as model:
        yield {"ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "sk-test-live"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("DM-5", "AG-18", "AG-21")
@pytest.mark.parametrize("kill_after_s", [0, 30])
async def test_claude_code_does_the_whole_backlog(
    tmp_path: Path, provider: dict[str, str], kill_after_s: float
) -> None:
    """Also when everything is killed in the middle."""
    try:
        await asyncio.to_thread(CLAUDE_CODE.install, programs_folder(), print)
    except ConfigError as error:
        pytest.skip(f"needs Claude Code from a package registry: {error}")
    stage = Stage(tmp_path)
    env = {**provider, "XDG_DATA_HOME": str(programs_folder().parents[1])}
    words = ("--live", "--agent", "claude-code", "--budget-usd", "9", "--json")
    if kill_after_s:
        assert await asyncio.to_thread(killed_at, stage, kill_after_s, *words, **env)
    code, out, err = await asyncio.to_thread(stage.play, *words, **env)
    assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
    document = json.loads(out)
    check_after_kills(stage, document)
    if not kill_after_s:
        *same, cost = document["differences"]
        assert not same and cost.startswith("cost: $")


@pytest.mark.spec("DM-5")
def test_a_live_demo_says_what_went_otherwise_than_scripted(tmp_path: Path) -> None:
    script = json.loads(REFERENCE.read_text("utf-8"))["issues"]
    issues = [
        IssueReport(id=f"{name}-1a2b3c4d", title=name, state=entry["state"], rounds=entry["rounds"])
        for name, entry in script.items()
        if name != "links-that-expire"
    ]
    issues[0] = issues[0].model_copy(update={"state": "parked", "rounds": 3})
    lines = differences(RunReport(run="r", issues=tuple(issues)))
    name = issues[0].id.rpartition("-")[0]
    assert f"{name}: parked, {script[name]['state']} in the script" in lines
    assert f"{name}: 3 rounds, {script[name]['rounds']} in the script" in lines
    assert "links-that-expire: not worked on" in lines
    assert "the-first-link-has-no-code: did not walk into the trap of the script: claim-contradicted" in lines


@pytest.mark.spec("DM-5")
def test_a_live_demo_without_a_key_says_what_is_missing(tmp_path: Path) -> None:
    code, _, err = Stage(tmp_path).play("--live")
    assert code == 2
    assert "ANTHROPIC_API_KEY is not set" in err
