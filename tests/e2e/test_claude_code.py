"""Claude Code through the whole line, on Till: the real program, the real command line, a scripted model."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.workshop import Workshop, add, states

from ironworks.agents.claude_code import CLAUDE_CODE
from ironworks.agents.program import programs_folder
from ironworks.core.errors import ConfigError
from ironworks.testing.model import Exchange, ScriptedModel, _Reply
from ironworks.testing.script import BashStep, Fault, HandoffStep, Play, Scene, Script, WriteStep
from ironworks.testing.till.repository import make_repository, write_configuration
from ironworks.testing.till.script import TOTAL, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
KILLED = Fault(kind="hang", times=1)


class Recording(ScriptedModel):
    """Keeps every conversation it was shown."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self.conversations: list[str] = []
        self.hung = asyncio.Event()

    async def _answer(self, body: bytes, key: str, reply: _Reply) -> None:
        self.conversations.append(json.dumps(json.loads(body)["messages"]))
        await super()._answer(body, key, reply)

    def _record(self, exchange: Exchange) -> None:
        super()._record(exchange)
        if exchange.outcome == "hang":
            self.hung.set()


class Shop(Workshop):
    """A workshop whose agents are Claude Code. Any repository with a backlog will do, and any play."""

    def __init__(self, folder: Path, plan: Mapping[str, Any], repository: Path, model: ScriptedModel) -> None:
        super().__init__(folder, plan, repository=repository)
        if not plan:
            self.backlog = repository / "backlog.md"
        write_configuration(self.config, model.base_url)
        text = self.config.read_text("utf-8").replace('"builtin"', '"claude-code"')
        self.config.write_text(text, "utf-8")

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "XDG_DATA_HOME": str(programs_folder().parents[1])}


@pytest.fixture(autouse=True)
async def installed() -> None:
    try:
        await asyncio.to_thread(CLAUDE_CODE.install, programs_folder(), print)
    except ConfigError as error:
        pytest.skip(f"needs Claude Code from a package registry: {error}")


def check(shop: Workshop, code: int, report: dict[str, Any]) -> None:
    assert (code, set(states(report).values()), len(states(report))) == (0, {"landed"}, 3), report["issues"]
    assert shop.suite_passes("ironworks/integration")
    rounds = {issue["title"]: issue["rounds"] for issue in report["issues"]}
    assert sorted(rounds.values()) == [1, 2, 2], "a lie and an objection took another round"


@pytest.mark.spec("AG-18", "AG-21")
async def test_three_issues_land_with_their_lie_their_objection_and_their_conflict(tmp_path: Path) -> None:
    async with Recording(script()) as model:
        shop = Shop(tmp_path, {}, make_repository(tmp_path / "till"), model)
        check(shop, *await asyncio.to_thread(shop.run))
        second = [
            prompt for prompt in model.conversations if "round: 2" in prompt and "stage: work" in prompt
        ]
        assert all("round: 1" in prompt for prompt in second), "a later round began a session of its own"


@pytest.mark.spec("AG-21", "EN-4")
async def test_a_factory_killed_while_it_works_goes_on_in_the_same_session(tmp_path: Path) -> None:
    play = script()
    scenes = [_hanging(scene) if (scene.issue, scene.round) == (TOTAL, 1) else scene for scene in play.scenes]
    async with Recording(play.model_copy(update={"scenes": tuple(scenes)})) as model:
        shop = Shop(tmp_path, {}, make_repository(tmp_path / "till"), model)
        process = shop.start(shop.run_words())
        await asyncio.wait_for(model.hung.wait(), 200)
        await asyncio.to_thread(recorded, shop, "[0:1]", '"tool_result"')
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        before = len(model.conversations)
        check(shop, *await asyncio.to_thread(shop.run))
        place = f"stage: work\\nissue: {TOTAL.rstrip('*')}"
        first = next(words for words in model.conversations[before:] if place in words)
        assert first.count(place) == 2 and "[0:1]" in first, "the conversation before the kill is gone"


def recorded(shop: Workshop, *words: str) -> None:
    """Wait until a session on some sandbox's disk holds `words`: it is written a little later than said."""
    disks = shop.folder / "state" / "sandboxes" / "disks"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in disks.glob("*/home/upper/.claude/projects/*/*.jsonl"):
            text = path.read_text("utf-8", "replace")
            if all(word in text for word in words):
                return
        time.sleep(0.05)
    raise AssertionError(f"no session holds {words!r}")


def _hanging(scene: Scene) -> Scene:
    """The same, but the model does not answer once after the second step."""
    one, two, three, *rest = scene.steps
    return scene.model_copy(update={"steps": (one, two, three.model_copy(update={"fault": KILLED}), *rest)})


@pytest.mark.spec("AG-23")
async def test_an_entry_has_the_agent_it_names_or_is_skipped_with_the_reason(tmp_path: Path) -> None:
    write, test, commit = add("mine")
    steps = (
        BashStep(command=f"{write} && {test}"),
        WriteStep(path="till/extra.py", content="EXTRA = 1\n"),
        BashStep(command=commit),
        HandoffStep(value={"status": "done", "summary": "done", "tests_pass": True}),
    )
    async with Recording(Script(scenes=(Scene(stage="work", issue="mine-*", steps=steps),))) as model:
        plan = {"Mine": {}, "Plain": {"work": [add("plain")]}, "Nobodys": {}}
        shop = Shop(tmp_path, plan, make_repository(tmp_path / "till"), model)
        text = shop.config.read_text("utf-8").replace(
            'use = "claude-code"',
            'use = "command"\ncommand = ["python3", "/agent/planned_agent.py"]\n'
            f'dir = "{tmp_path / "agent"}"',
        )
        shop.config.write_text(text, "utf-8")
        text = shop.backlog.read_text("utf-8")
        for title, agent in (("Mine", "claude-code"), ("Nobodys", "nonesuch")):
            text = text.replace(f"## {title}\n\n", f"## {title}\nagent: {agent}\n\n")
        shop.backlog.write_text(text, "utf-8")
        code, report = await asyncio.to_thread(shop.run)
        assert (code, states(report)) == (0, {"Mine": "landed", "Plain": "landed", "Nobodys": "skipped"})
        [skipped] = [issue["reason"] for issue in report["issues"] if issue["state"] == "skipped"]
        assert "there is no agent called 'nonesuch'" in skipped
        assert {exchange.stage for exchange in model.exchanges} == {"work"}
