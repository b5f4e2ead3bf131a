"""Runs the test suites on a commit, in a fresh sandbox, and believes only what agrees with itself."""

import asyncio
import contextlib
import posixpath
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence

from ironworks.core.errors import MissingError, RefusedError
from ironworks.core.models import ExecResult, Model, Sha, TestOutcome
from ironworks.core.ports import WORK_DIR, Mount, Sandbox, SandboxBackend, SandboxSpec
from ironworks.core.settings import ServiceSettings, TestSettings
from ironworks.git.depot import Depot
from ironworks.sandbox.checkout import place
from ironworks.sandbox.service import Service, services
from ironworks.verify.canary import Canary, CanaryState
from ironworks.verify.report import Report, parse

BASE_REPOSITORY = "/ironworks/base.git"
REPORT_BYTES = 64_000_000
LOG_CHARACTERS = 20_000
AT_ONCE = 2
MOST_SELECTED = 50


class BaseSnapshot(Model):
    """What every verification boots from."""

    snapshot: str
    commit: Sha
    repository: str
    """Host path of the bare repository that holds the base commit's history."""
    built: tuple[str, ...] = ()
    """Patterns for what the project's own preparation left in the tree: nobody's change."""


class SuiteRun(Model):
    """What the suites said about one commit. With a `problem`, nothing they said is to be believed."""

    tests: dict[str, TestOutcome] = {}
    """By id `suite::classname::name`; the canary's own are left out."""
    messages: dict[str, str] = {}
    problem: str = ""
    log: str = ""
    exit_codes: dict[str, int | None] = {}
    """By suite; None = timed out."""
    duration_s: float = 0.0
    cpu_s: float = 0.0
    canaries: dict[str, CanaryState] = {}
    """By suite, where one was asked for."""

    def having(self, *outcomes: TestOutcome) -> frozenset[str]:
        return frozenset(test for test, outcome in self.tests.items() if outcome in outcomes)

    @property
    def passed(self) -> frozenset[str]:
        return self.having("passed")

    @property
    def failing(self) -> frozenset[str]:
        """Failed or error."""
        return self.having("failed", "error")


class Suites:
    """The project's suites, ready to run on any commit that grew from the base snapshot's.

    `template` gives the limits, environment and further mounts of the sandboxes. At most two run at a time.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        depot: Depot,
        *,
        tests: tuple[TestSettings, ...],
        base: BaseSnapshot,
        template: SandboxSpec | None = None,
        services: Mapping[str, ServiceSettings] | None = None,
    ) -> None:
        self.backend = backend
        self.depot = depot
        self.tests = tests
        self.base = base
        self.template = template or SandboxSpec(name="suite")
        self.services = services or {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def runners(self) -> frozenset[str]:
        """Paths of the repository that a command may name, such as a script that runs the tests."""
        words = [
            (suite.dir, word)
            for suite in self.tests
            for word in re.split(r"[\s;&|<>()'\"=`$]+", suite.command)
        ]
        return frozenset(posixpath.normpath(posixpath.join(folder, word)) for folder, word in words if word)

    async def run(
        self,
        commit: str,
        *,
        name: str,
        files: Mapping[str, bytes] | None = None,
        canary: bool = False,
        only: frozenset[str] = frozenset(),
    ) -> SuiteRun:
        """Run every suite on `commit`; `files` by absolute path, or path in it; sandbox `name` is made anew.

        `only`: these tests are enough; a runner that cannot select runs all of its suite. SandboxError when
        the sandbox could not be made or died, which says nothing about the commit.
        """
        async with self._slots:
            await self.backend.destroy(name)
            try:
                sandbox = await self.backend.create(self._spec(name))
                await place(sandbox, self.depot, commit, base=self.base.commit, built=self.base.built)
                for path, data in (files or {}).items():
                    await sandbox.put(posixpath.join(WORK_DIR, path), data)
                return await self._run_all(sandbox, canary=canary, only=only)
            except RefusedError as error:
                return SuiteRun(problem=str(error))
            finally:
                await self.backend.destroy(name)

    async def run_in(self, sandbox: Sandbox) -> SuiteRun:
        """Run every suite on what is in `sandbox` now. Its tenant may have tampered: advice, no evidence."""
        return await self._run_all(sandbox, canary=False, only=frozenset(), alone=False)

    def _spec(self, name: str) -> SandboxSpec:
        others = (mount for mount in self.template.mounts if mount.inside != BASE_REPOSITORY)
        mounts = (Mount(host=self.base.repository, inside=BASE_REPOSITORY), *others)
        changes = {"name": name, "snapshot": self.base.snapshot, "mounts": mounts}
        return self.template.model_copy(update=changes)

    async def _run_all(
        self, sandbox: Sandbox, *, canary: bool, only: frozenset[str], alone: bool = True
    ) -> SuiteRun:
        started = time.monotonic()
        known = (await asyncio.to_thread(self.depot.files, self.base.commit)) if canary else {}
        runs = []
        for number, suite in enumerate(self.tests):
            chosen = frozenset(test for test in only if test.startswith(f"{suite.name}::"))
            if only and not chosen:
                continue
            planted = Canary.plant(suite, known)
            if planted:
                with contextlib.suppress(RefusedError):  # The work left no folder for it: it will be absent.
                    await sandbox.put(f"{WORK_DIR}/{planted.path}", planted.source)
            report = f"/run/ironworks/junit-{number}.xml"
            # Whatever a suite leaves running is ended after it, its services too: each suite has fresh ones.
            async with services(sandbox, self.services if alone else {}) as beside:
                run = await _run_suite(sandbox, suite, report, planted, chosen, alone, beside)
            if canary and not planted:
                run = run.model_copy(update={"canaries": {suite.name: "unavailable"}})
            runs.append(run)
        usage = await sandbox.usage()
        return _joined(runs, duration_s=time.monotonic() - started, cpu_s=usage.cpu_s)


async def _run_suite(
    sandbox: Sandbox,
    suite: TestSettings,
    report: str,
    canary: Canary | None,
    only: frozenset[str],
    alone: bool,
    beside: Sequence[Service],
) -> SuiteRun:
    await sandbox.exec(["sh", "-c", f"mkdir -p /run/ironworks && rm -rf {report}"], cwd="/", timeout_s=30)
    result = await sandbox.exec(
        ["sh", "-c", suite.command.replace("{junit}", report)],
        env={**suite.env, "PYTEST_ADDOPTS": pytest_options(suite.env.get("PYTEST_ADDOPTS", ""), only)},
        cwd=f"{WORK_DIR}/{suite.dir}",
        timeout_s=suite.timeout_s,
    )
    gone = next(filter(None, (service.ending() for service in beside)), "")
    if alone:
        await sandbox.kill_all()  # What it left running must not write the report anew.
    said, problem = await _report(sandbox, suite, report, result)
    state, tests = canary.split(said.tests) if canary else (None, said.tests)
    problem = gone or problem or _disagreement(result, said, tests, state)
    return SuiteRun(
        tests=tests,
        messages={test: text for test, text in said.messages.items() if test in tests},
        problem=f"suite {suite.name}: {problem}" if problem else "",
        log=result.text(LOG_CHARACTERS),
        exit_codes={suite.name: result.exit_code},
        canaries={suite.name: state} if state else {},
    )


async def _report(sandbox: Sandbox, suite: TestSettings, path: str, result: ExecResult) -> tuple[Report, str]:
    """What the suite reported, or why it cannot be used. Without `{junit}` it speaks TAP on stdout."""
    if result.timed_out:
        return Report(), f"not finished after {suite.timeout_s:g} s"
    try:
        data = (
            await sandbox.get(path, max_bytes=REPORT_BYTES) if "{junit}" in suite.command else result.stdout
        )
        said = await asyncio.to_thread(parse, data, suite.name)
    except MissingError:
        return Report(), f"exit code {result.exit_code} and no report"
    except RefusedError as error:
        return Report(), f"exit code {result.exit_code} and an unusable report: {error}"
    return said, "" if said.tests else f"exit code {result.exit_code} and a report without tests"


def _disagreement(
    result: ExecResult, said: Report, tests: Mapping[str, TestOutcome], canary: CanaryState | None
) -> str:
    """Why exit code and report cannot both be true."""
    failing = sum(outcome in {"failed", "error"} for outcome in said.tests.values())
    if result.exit_code == 0 and failing:
        return f"exit code 0 although {failing} tests failed"
    if result.exit_code != 0 and not failing:
        return f"exit code {result.exit_code} although no test failed"
    if canary == "sound" and said.runner == "pytest" and result.exit_code != 1:
        return f"exit code {result.exit_code} where pytest says 1 for failed tests"
    return "" if tests or canary is None else "no test but our own was collected"


def pytest_options(given: str, only: Iterable[str]) -> str:
    """`PYTEST_ADDOPTS`, ignored by other runners: a broken module hides no other, and `only` is selected."""
    names = sorted({re.split(r"\[", test.rpartition("::")[2])[0].rpartition(".")[2] for test in only})
    selectable = names and len(names) <= MOST_SELECTED and all(map(str.isidentifier, names))
    chosen = f" -k {shlex.quote(' or '.join(names))}" if selectable else ""
    return f"{given} --continue-on-collection-errors{chosen}".strip()


def _joined(runs: list[SuiteRun], *, duration_s: float, cpu_s: float) -> SuiteRun:
    return SuiteRun(
        tests={test: outcome for run in runs for test, outcome in run.tests.items()},
        messages={test: text for run in runs for test, text in run.messages.items()},
        problem="; ".join(run.problem for run in runs if run.problem)
        or ("" if runs else "no suite is configured"),
        log="\n".join(run.log for run in runs)[-LOG_CHARACTERS:],
        exit_codes={suite: code for run in runs for suite, code in run.exit_codes.items()},
        canaries={suite: state for run in runs for suite, state in run.canaries.items()},
        duration_s=duration_s,
        cpu_s=cpu_s,
    )
