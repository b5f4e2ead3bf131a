"""One performance of the demo: set the scene, let the factories work, report, grade, merge."""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.cli.demo.comparison import differences
from ironworks.cli.demo.narrator import Narrator, at_list_price, conclude, introduce, point_on, unlike
from ironworks.cli.demo.troupe import Troupe, called
from ironworks.cli.output import print_json
from ironworks.cli.summary import freeze, write_whole
from ironworks.core.errors import BusyError, IronworksError, UsageError
from ironworks.core.policy import INTEGRATION_BRANCH, INTEGRATION_PULL
from ironworks.core.report import Grade, RunReport
from ironworks.git.repository import Repository

MARK = "demo.json"
"""In the folder of a demo: what was asked for, so that the same words go on with it."""


class Play(NamedTuple):
    """What was asked for. `agent`, `model` and `budget_usd` are of `live` only."""

    folder: Path
    seed: int
    chaos: bool
    live: bool
    agent: str
    model: str
    budget_usd: float

    @property
    def repository(self) -> Path:
        return self.folder / "tiny-links"

    @property
    def hidden(self) -> Path:
        return self.folder / "hidden"

    @property
    def mark(self) -> str:
        return json.dumps({"seed": self.seed, "chaos": self.chaos, "live": self.live})


class Result(NamedTuple):
    """How it ended. `merged`: the commit main is at, empty if nothing was merged."""

    report: RunReport
    grades: tuple[Grade, ...]
    merged: str

    @property
    def exit_code(self) -> int:
        graded = all(grade.passed == grade.total > 0 for grade in self.grades[1:])
        return self.report.exit_code or int(not graded or not self.merged)


async def play(wanted: Play, *, as_json: bool, kept: bool) -> int:
    """The exit code. Killed at any moment, the same call goes on where it was."""
    if not as_json:
        introduce(live=wanted.live, chaos=wanted.chaos)
    with _alone(wanted.folder):
        result = await _result(wanted, Narrator(quiet=as_json))
    if as_json:
        print_json(
            {
                "report": result.report.model_dump(mode="json"),
                "grades": [grade.model_dump(mode="json") for grade in result.grades],
                "merged": result.merged,
                "seed": wanted.seed,
                "differences": differences(result.report) if wanted.live else [],
            }
        )
    else:
        conclude(result.report, result.grades, result.merged)
        unlike(differences(result.report)) if wanted.live else at_list_price(result.report)
        point_on(wanted.folder if kept else None)
    return result.exit_code


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only demo in `folder`, which is made. A second one would send the factories to its own model.

    The folder itself is locked: the lock goes with the process, and leaves no file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{folder} cannot be used: {error.strerror}", hint="name a new folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise BusyError(
            f"another demo is at work in {folder}", hint="wait for it, or name another"
        ) from error
    finally:
        os.close(descriptor)


async def _result(wanted: Play, narrator: Narrator) -> Result:
    await asyncio.to_thread(set_scene, wanted)
    async with _providers(wanted) as configurations:
        troupe = Troupe(wanted.folder, wanted.repository, configurations)
        report = await _performed(wanted, troupe, narrator)
    return await _judged(wanted, report)


def set_scene(wanted: Play) -> None:
    """Repository, hidden suite and mark. UsageError for a folder that holds something else."""
    from ironworks.testing.demo.chaos import BACKLOG
    from ironworks.testing.demo.repository import make_repository, write_hidden_suite

    folder, mark = wanted.folder, wanted.folder / MARK
    if not mark.exists():
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="name a new folder")
        write_whole(mark, wanted.mark)
    elif (found := mark.read_text("utf-8", "replace")) != wanted.mark:
        raise UsageError(f"{folder} holds another demo: {found[:200]}", hint="name a new folder")
    _made(wanted.hidden, write_hidden_suite)
    more = BACKLOG if wanted.chaos else ""
    _made(wanted.repository, lambda path: make_repository(path, seed=wanted.seed, more=more))


def _made(path: Path, make: Callable[[Path], object]) -> None:
    """Make a folder, all of it or none."""
    if not path.exists():
        draft = path.with_name(f".{path.name}")
        shutil.rmtree(draft, ignore_errors=True)
        make(draft)
        draft.rename(path)


@contextlib.asynccontextmanager
async def _providers(wanted: Play) -> AsyncIterator[list[str]]:
    """What each factory's operator says, while the model behind it answers."""
    from ironworks.cli.demo.settings import live_settings, scripted_settings
    from ironworks.testing.demo.cast import Cast
    from ironworks.testing.demo.chaos import CHAOS
    from ironworks.testing.demo.part import PARTS
    from ironworks.testing.model import ScriptedModel

    if wanted.live:
        yield [live_settings(wanted.agent, wanted.model, wanted.budget_usd)]
        return
    parts = {**PARTS, **CHAOS} if wanted.chaos else PARTS
    async with ScriptedModel(Cast(wanted.seed, parts=parts)) as model:
        yield [scripted_settings(model.base_url, parallel, chaos=wanted.chaos) for parallel in (3, 2)]


async def _performed(wanted: Play, troupe: Troupe, narrator: Narrator) -> RunReport:
    """The one report of all factories; once written it stays."""
    frozen = wanted.folder / "report.json"
    if frozen.exists():
        return RunReport.model_validate_json(await asyncio.to_thread(frozen.read_bytes))
    report = await troupe.perform(narrator)
    await asyncio.to_thread(freeze, report, wanted.folder)
    return report


async def _judged(wanted: Play, report: RunReport) -> Result:
    """The hidden suite, before and after, now that the report is frozen; then the human's part."""
    if not report.integration.merged:
        return Result(report, (), "")
    graded = wanted.folder / "grades.json"
    if not graded.exists():
        config = wanted.folder / "operator" / "grade.toml"
        operator = config.with_name("factory-1.toml").read_text("utf-8")
        hidden = f"\n[project]\nhidden_tests = {json.dumps(str(wanted.hidden))}\n"
        config.write_text(operator + hidden, "utf-8")
        words = ["grade", "main", INTEGRATION_BRANCH, "--config", str(config), "--json"]
        write_whole(graded, json.dumps(await _said(wanted, *words)))
    grades = tuple(Grade.model_validate(grade) for grade in json.loads(graded.read_text("utf-8")))
    if await asyncio.to_thread(_main, wanted) != report.integration.commit:
        await _said(wanted, "pr", "merge", INTEGRATION_PULL, "--json")
    return Result(report, grades, await asyncio.to_thread(_main, wanted))


def _main(wanted: Play) -> str:
    """The commit that main is at."""
    return Repository(wanted.repository).refs("refs/heads/main")["refs/heads/main"]


async def _said(wanted: Play, *words: str) -> Any:
    """What a verb printed as JSON. IronworksError when it failed in a way that is no verdict."""
    place = ["--repository", str(wanted.repository), "--state", str(wanted.folder / "state-1")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "ironworks", *words, *place,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        env=dict(os.environ), preexec_fn=called,
    )  # fmt: skip
    out, err = await process.communicate()
    try:
        said = json.loads(out)
    except ValueError:
        said = {"error": {"message": err.decode("utf-8", "replace")[-2000:]}}
    if isinstance(said, dict) and "error" in said:
        raise IronworksError(f"ironworks {words[0]} failed: {said['error'].get('message')}")
    return said
