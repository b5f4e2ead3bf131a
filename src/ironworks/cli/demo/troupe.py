"""The factories of a demo: processes of their own on one backlog, watched through their event logs."""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ironworks.app.place import Place, find_place
from ironworks.cli.demo.narrator import Narrator
from ironworks.cli.report import recorded
from ironworks.core.errors import IronworksError, StoreError
from ironworks.core.events import EVENT
from ironworks.core.models import PullRequest
from ironworks.core.report import RunReport
from ironworks.store.reader import Reader

POLL_S = 0.15
STOP_S = 60.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def called() -> None:
    """Runs in a child before its program: when we are killed, it is too."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _heard(ends: asyncio.Future[list[None]]) -> None:
    """Whoever presses Ctrl-C waits for no result: without this Python complains that nobody did."""
    if not ends.cancelled():
        ends.exception()


class Member:
    """One factory: its place, its log as far as it was told, its ending."""

    def __init__(self, number: int, folder: Path, repository: Path, configuration: str) -> None:
        self.number = number
        self.place: Place = find_place(repository, folder / f"state-{number}")
        self.reader = Reader(self.place.database)
        self.report = folder / f"factory-{number}.json"
        self.config = folder / "operator" / f"factory-{number}.toml"
        self.errors = folder / f"factory-{number}.log"
        self.process: asyncio.subprocess.Process | None = None
        self._seq = 0
        self.config.parent.mkdir(exist_ok=True)
        self.config.write_text(configuration, "utf-8")
        self.config.with_name(".env").write_text("DEMO_KEY=sk-test-demo\n", "utf-8")

    async def start(self) -> None:
        """Begin, or go on; nothing to do where it has ended already."""
        if self.report.exists():
            return
        words = [
            "run",
            "--backlog",
            str(self.place.root / "backlog.md"),
            "--config",
            str(self.config),
            "--json",
        ]
        place = ["--repository", str(self.place.root), "--state", str(self.place.state), "--quiet"]
        with self.errors.open("ab") as errors, self.report.with_suffix(".part").open("wb") as report:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "ironworks", *words, *place,
                stdin=asyncio.subprocess.DEVNULL, stdout=report, stderr=errors,
                env=dict(os.environ), preexec_fn=called,
            )  # fmt: skip

    async def finish(self) -> None:
        """Keep the report of a process that has ended. IronworksError when it could not do its work."""
        if self.process is None:
            return
        code = await self.process.wait()
        draft = self.report.with_suffix(".part")
        said = await asyncio.to_thread(draft.read_bytes)
        if code not in (0, 1, 3) or not said.startswith(b"{") or b'"issues"' not in said:
            words = (await asyncio.to_thread(self.errors.read_bytes))[-2000:].decode("utf-8", "replace")
            words = words.strip() or f"it could not say why: is the disk of {self.report.parent} full?"
            raise IronworksError(f"factory {self.number} ended with exit code {code}:\n{words}")
        if RunReport.model_validate_json(said).stopped:
            # Not its last word: kept, it would never go on.
            raise IronworksError(f"factory {self.number} was stopped", hint="the same words go on with it")
        draft.rename(self.report)

    def tell(self, narrator: Narrator) -> None:
        """Hand on what is new in its log."""
        try:
            rows = self.reader.rows(after=self._seq)
        except StoreError:
            return  # It is being made at this moment.
        for row in rows:
            self._seq = row.seq
            narrator.tell(self.number, row.at_s, EVENT.validate_python(row.event))


class Troupe:
    """All factories of a demo. `configurations`: what each one's operator says."""

    def __init__(self, folder: Path, repository: Path, configurations: Sequence[str]) -> None:
        self.members = [
            Member(number, folder, repository, configuration)
            for number, configuration in enumerate(configurations, 1)
        ]

    async def perform(self, narrator: Narrator) -> RunReport:
        """Start all at the same moment, tell what happens until all have ended; the one report of all."""
        from ironworks.engine.report import Merged, build_report

        try:
            await asyncio.gather(*(member.start() for member in self.members))
            ends = asyncio.gather(*(member.finish() for member in self.members))
            ends.add_done_callback(_heard)
            while not ends.done():
                await asyncio.wait([ends], timeout=POLL_S)
                for member in self.members:
                    await asyncio.to_thread(member.tell, narrator)
            ends.result()
        finally:
            await self._stop()
        # All runs: one that was killed when it had just finished is followed by one that finds nothing to do.
        logs = [recorded(member.reader) for member in self.members]
        parts = [json.loads(member.report.read_text("utf-8")) for member in self.members]
        pulls = {
            pull["id"]: PullRequest.model_validate(pull) for part in parts for pull in part["pull_requests"]
        }
        state_dir = str(self.members[0].place.state)
        return build_report(Merged(logs), "demo", pulls=list(pulls.values()), state_dir=state_dir)

    async def _stop(self) -> None:
        """End what still runs: politely first, so that work is captured."""
        alive = [m.process for m in self.members if m.process is not None and m.process.returncode is None]
        for process in alive:
            process.terminate()
        if alive:
            await asyncio.wait([asyncio.create_task(process.wait()) for process in alive], timeout=STOP_S)
        for process in alive:
            if process.returncode is None:
                process.kill()
                await process.wait()
