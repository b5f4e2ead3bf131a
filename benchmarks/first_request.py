"""From claim to first model request, ten issues at once from a warm base; and model calls of an idle factory.

The factory, the gateway and the scripted model share this process. All ten issues end in a question to a
person; one more is paused, which keeps the factory running while nothing is to be done.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from bars.result import Bar, conclude, options

from ironworks.app.base import base_reader
from ironworks.app.configuration import load
from ironworks.app.factory import Options, open_factory
from ironworks.app.place import find_place
from ironworks.core.events import IssueClaimed, Recorded
from ironworks.core.report import RunReport
from ironworks.testing.model import ScriptedModel
from ironworks.testing.script import HandoffStep, Scene, Script
from ironworks.testing.till.repository import make_repository, write_configuration

ISSUES = 10
FIRST_S, TIMEOUT_S = 1.0, 120
ASK = HandoffStep(value={"decision": "ask", "kind": "feature", "questions": ["Which colour?"]})
SCRIPT = Script(scenes=(Scene(stage="triage", steps=(ASK,)),))


class Bench:
    """One repository, one state directory, one model."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.model = model
        self.claimed: dict[str, float] = {}
        self.repository = make_repository(folder / "till")
        self.place = find_place(self.repository, folder / "state")
        more = f"[limits]\nparallel = {ISSUES + 1}\n"
        self.config = write_configuration(folder / "operator.toml", model.base_url, more=more)
        self.folder = folder

    def watch(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, IssueClaimed):
            self.claimed[recorded.event.issue] = recorded.at.timestamp()

    async def run(self, titles: list[str], *, idle_s: float = 0) -> tuple[RunReport, int]:
        """The report of a run over these issues, and the model calls made while it was idle at its end."""
        backlog = self.folder / "backlog.md"
        backlog.write_text("".join(f"## {title}\n\nPlease.\n\n" for title in titles), "utf-8")
        loaded = load(self.place, base_reader(self.place.root), file=self.config)
        async with open_factory(self.place, loaded, Options(backlog=backlog)) as factory:

            def watch(recorded: Recorded) -> None:
                self.watch(recorded)
                event = recorded.event
                if isinstance(event, IssueClaimed) and event.issue.startswith("held-"):
                    holding.append(asyncio.ensure_future(factory.floor.pause(event.issue)))

            holding: list[asyncio.Future[None]] = []
            running = asyncio.create_task(factory.run(watch=watch))
            calls = 0
            if idle_s:
                await self._all_asked(running)
                before = self.model.count
                await asyncio.sleep(idle_s)
                calls = self.model.count - before
                if running.done():
                    raise SystemExit("the factory did not stay")
                factory.stop()
            return await asyncio.wait_for(running, TIMEOUT_S), calls

    async def _all_asked(self, running: "asyncio.Task[RunReport]") -> None:
        """Wait until each issue but the held one has had its answer, and the factory has settled."""
        deadline = time.monotonic() + TIMEOUT_S
        seen = 0
        while time.monotonic() < deadline and not running.done():
            asked = {exchange.issue for exchange in self.model.exchanges}
            seen = len([issue for issue in asked if issue.startswith("issue-")])
            if seen == ISSUES:
                await asyncio.sleep(3)
                return
            await asyncio.sleep(0.1)
        raise SystemExit(f"only {seen} of {ISSUES} issues reached the model")

    def first_requests_s(self, offset_s: float) -> list[float]:
        """Seconds from claim to first request, by issue."""
        first: dict[str, float] = {}
        for exchange in self.model.exchanges:
            first.setdefault(exchange.issue, exchange.at_s + offset_s)
        return [first[issue] - at for issue, at in self.claimed.items() if issue.startswith("issue-")]


async def measure(folder: Path, idle_s: float) -> tuple[list[float], int]:
    async with ScriptedModel(SCRIPT) as model:
        bench = Bench(folder, model)
        await bench.run(["Warm"])
        titles = [f"Issue {number}" for number in range(1, ISSUES + 1)]
        _, calls = await bench.run([*titles, "Held"], idle_s=idle_s)
        return bench.first_requests_s(time.time() - time.monotonic()), calls


def main() -> None:
    chosen = options(str(__doc__).splitlines()[0])
    idle_s = 10 if chosen.quick else 60
    medians, worst, calls = [], [], 0
    for number in range(1 if chosen.quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            times, more = asyncio.run(measure(Path(folder), idle_s if number == 0 else 0.1))
        medians.append(statistics.median(times))
        worst.append(max(times))
        calls += more
    bars = [
        Bar("claim to first model request, s p50", round(statistics.median(medians), 3), FIRST_S),
        Bar(f"model calls in {idle_s} s idle", calls, 0),
    ]
    numbers = {"p50_s": [round(value, 3) for value in medians], "max_s": round(max(worst), 3)}
    conclude(bars, dict(numbers), as_json=chosen.json)


if __name__ == "__main__":
    main()
