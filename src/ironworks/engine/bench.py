"""The test bench of a run: the base commit, its prepared snapshot, and what proves changes against it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import ConfigError
from ironworks.core.events import BaselineTaken
from ironworks.core.ports import Mount, Sandbox
from ironworks.core.report import Grade
from ironworks.engine.base import BASE_MOUNT, base_snapshot
from ironworks.engine.floor import Floor
from ironworks.git.depot import Depot
from ironworks.merge.integrator import Integrator
from ironworks.sandbox.checkout import place
from ironworks.sandbox.service import ServiceFailed
from ironworks.verify.grade import grade as run_hidden
from ironworks.verify.suite import BaseSnapshot, Suites
from ironworks.verify.verifier import Verifier


@dataclass(frozen=True)
class Bench:
    base: BaseSnapshot
    suites: Suites
    verifier: Verifier
    integrator: Integrator
    depot: Depot

    @property
    def mount(self) -> Mount:
        return Mount(host=self.base.repository, inside=BASE_MOUNT)

    async def place(self, sandbox: Sandbox, commit: str) -> None:
        """Check `commit`, which builds on the base, out in a sandbox that was booted from it."""
        await place(sandbox, self.depot, commit, base=self.base.commit, built=self.base.built)


async def set_up(floor: Floor, commit: str) -> Bench:
    """The bench for base `commit`: its snapshot is made if this state directory has none yet."""
    if not floor.settings.project.test:
        raise ConfigError(
            "no test command: nothing could be proved",
            hint="set `test` under [project], or run `ironworks init`",
        )
    repository = floor.parts.state / "bases" / f"{commit}.git"
    if not repository.exists():
        repository.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(floor.parts.depot.base_repository, commit, repository)
    base = await base_snapshot(floor, commit, repository)
    snapshot = base.snapshot
    project = floor.settings.project
    suites = Suites(
        floor.parts.backend,
        floor.parts.depot,
        tests=project.test,
        base=base,
        template=floor.spec("suite", snapshot=snapshot),
        services=floor.settings.sandbox.services,
    )
    verifier = Verifier(suites, floor.parts.depot, bounds=project.scope, protected=project.protected)
    return Bench(base, suites, verifier, Integrator(floor.parts.depot, suites), floor.parts.depot)


async def take_baseline(floor: Floor) -> None:
    """Measure what fails on base already, for all who await `floor.baseline()`. May raise ConfigError."""
    try:
        taken, run = await floor.bench.verifier.baseline()
    except ServiceFailed as error:
        raise ConfigError(f"on the base commit {error.message}", hint="see [sandbox.services]") from error
    if run.problem:
        raise ConfigError(
            f"the test command does not work on the base commit: {run.problem}",
            hint=f"it must write its JUnit report to {{junit}}; the end of its output:\n{run.log[-1500:]}",
        )
    event = BaselineTaken(run=floor.run, commit=taken.commit, passed=taken.passed, failing=taken.failing)
    await floor.record(event, key=f"{floor.run}/baseline/{taken.commit}")
    # Only a base that can be tested is kept for the rest of the run: a person may mend one that cannot.
    await asyncio.to_thread(floor.parts.store.remember, f"{floor.run}/base", {"commit": taken.commit})
    crash_point("base.after_baseline")
    floor.baselined.set_result(taken)


async def grade(floor: Floor, commit: str) -> Grade:
    """What the project's hidden suite says of `commit`. ConfigError when there is none."""
    project = floor.settings.project
    if not project.hidden_tests:
        raise ConfigError("no hidden suite is configured", hint="set `hidden_tests` under [project]")
    folder, name = Path(project.hidden_tests), f"grade-{commit[:16]}"
    return await run_hidden(floor.bench.suites, commit, folder, project.hidden_command, name=name)
