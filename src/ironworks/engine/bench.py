"""The test bench of a run: the base commit, its prepared snapshot, and what proves changes against it."""

import asyncio
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import ConfigError
from ironworks.core.events import BaselineTaken, BaseSnapshotMade
from ironworks.core.models import Model, json_bytes
from ironworks.core.ports import Mount, Sandbox
from ironworks.core.report import Grade
from ironworks.egress.grant import Grant
from ironworks.engine.floor import Floor
from ironworks.git.depot import Depot
from ironworks.merge.integrator import Integrator
from ironworks.sandbox.checkout import clone_base, place, settle
from ironworks.sandbox.service import ServiceFailed
from ironworks.verify.grade import grade as run_hidden
from ironworks.verify.suite import BaseSnapshot, Suites
from ironworks.verify.verifier import Verifier

BASE_MOUNT = "/ironworks/base.git"
PREPARE_TIMEOUT_S = 3600
FORMAT = 2
"""Of base snapshots: one that was made otherwise is not used."""


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


class _Built(Model):
    """What a base snapshot's preparation left in the tree, as `settle` tells it."""

    patterns: tuple[str, ...] = ()


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
    snapshot = await _snapshot(floor, commit, repository)
    built = _Built.model_validate(await floor.recall(f"snapshot/{snapshot}/built") or {}).patterns
    base = BaseSnapshot(snapshot=snapshot, commit=commit, repository=str(repository), built=built)
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


async def _snapshot(floor: Floor, commit: str, repository: Path) -> str:
    recipe = json_bytes([FORMAT, commit, floor.settings.project.prepare, floor.settings.sandbox.model_dump()])
    name = f"base-{hashlib.sha256(recipe).hexdigest()[:16]}"
    if not await floor.parts.backend.has_snapshot(name):
        crash_point("base.before_prepare")
        began = time.monotonic()
        prepare_s = await _prepare(floor, commit, repository, name)
        made = BaseSnapshotMade(
            run=floor.run,
            commit=commit,
            snapshot=name,
            duration_s=time.monotonic() - began,
            prepare_s=prepare_s,
        )
        await floor.record(made, key=f"{floor.run}/snapshot/{name}")
        crash_point("base.after_prepare")
    return name


async def _prepare(floor: Floor, commit: str, repository: Path, name: str) -> float:
    """Makes the snapshot; how many seconds the project's own commands took."""
    prepare_s = 0.0
    # A half-prepared disk of a crash is thrown away: only a whole preparation may become the base.
    await floor.parts.backend.destroy(f"{name}-build")
    spec = floor.spec(f"{name}-build", snapshot=None, mounts=[Mount(host=str(repository), inside=BASE_MOUNT)])
    grant = Grant(
        key=f"{floor.run}/prepare",
        run=floor.run,
        issue="",
        stage="prepare",
        issue_cap_usd=floor.settings.budget.issue_usd,
        models=False,
        allow=(*floor.settings.network.allow, *floor.settings.network.prepare),
    )
    async with floor.station(spec, grant) as station:
        await clone_base(station.sandbox, base=commit)
        for command in floor.settings.project.prepare:
            result = await station.sandbox.exec(
                ["sh", "-c", command], env=station.attachment.env, timeout_s=PREPARE_TIMEOUT_S
            )
            prepare_s += result.duration_s
            if not result.ok:
                raise PrepareFailed(command, result.text(2000))
        built = _Built(patterns=await settle(station.sandbox, base=commit))
        await floor.remember(f"snapshot/{name}/built", built)
        await floor.parts.backend.snapshot(station.sandbox, name)
    await floor.parts.backend.destroy(f"{name}-build")
    return prepare_s


class PrepareFailed(ConfigError):
    """A `prepare` command failed in the base sandbox."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(
            f"`{command}` failed while the base snapshot was prepared:\n{output}",
            hint='a registry it needs must be allowed: [network] prepare = ["pip", ..]',
        )
