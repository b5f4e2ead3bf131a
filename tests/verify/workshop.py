"""A small repository with a depot, real sandboxes and a base snapshot, as verification finds them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ironworks.core.models import Issue
from ironworks.core.ports import Mount, SandboxSpec
from ironworks.core.settings import TestSettings
from ironworks.git.depot import Depot
from ironworks.git.tree import Blob
from ironworks.sandbox.checkout import clone_base
from ironworks.sandbox.local.backend import LocalBackend
from ironworks.verify.suite import BASE_REPOSITORY, BaseSnapshot, Suites
from ironworks.verify.verifier import Verifier

SITE = Path(pytest.__file__).parents[1]
PYTEST = TestSettings(
    name="unit", command="python3 -m pytest -q -p no:cacheprovider --junitxml={junit}", timeout_s=60
)
ISSUE = Issue(id="negative", title="add() is wrong for negative numbers", body="add(-1, 2) must be 1.")
Files = Mapping[str, str | bytes | None]


def shell(command: str, **fields: object) -> TestSettings:
    return TestSettings.model_validate({"name": "unit", "command": command, "timeout_s": 30, **fields})


def reporting(*verdicts: str, code: int, first: int = 0) -> TestSettings:
    """A suite whose report holds tests `t0`, `t1`, ... with these verdicts, and its exit code."""
    cases = "".join(
        f'<testcase name="t{number}" classname="c">{said}</testcase>'
        for number, said in enumerate(verdicts, first)
    )
    return shell(f"printf %s '<testsuite>{cases}</testsuite>' > {{junit}}; exit {code}")


class Workshop:
    """`base` is the commit everything grows from."""

    def __init__(self, depot: Depot, backend: LocalBackend, base: str) -> None:
        self.depot = depot
        self.backend = backend
        self.base = base
        self.snapshot: BaseSnapshot | None = None

    def commit(self, files: Files, *parents: str) -> str:
        """A commit with these files put over the first parent (default: the base); None deletes."""
        parents = parents or (self.base,)
        blobs = {
            path: None if data is None else Blob(data if isinstance(data, bytes) else data.encode())
            for path, data in files.items()
        }
        return self.depot.commit(self.depot.write_tree(parents[0], blobs), parents, "work")

    def exactly(self, files: Files) -> str:
        """A commit on the base that holds these files and no other."""
        gone = dict.fromkeys(self.depot.files(self.base))
        return self.commit({**gone, **files})

    def suites(self, *tests: TestSettings) -> Suites:
        assert self.snapshot
        template = SandboxSpec(
            name="template",
            env={"PYTHONPATH": "/opt/site", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            mounts=(Mount(host=str(SITE), inside="/opt/site"),),
        )
        return Suites(
            self.backend, self.depot, tests=tests or (PYTEST,), base=self.snapshot, template=template
        )

    def verifier(self, *tests: TestSettings) -> Verifier:
        return Verifier(self.suites(*tests), self.depot)


@asynccontextmanager
async def workshop(folder: Path, files: Files) -> AsyncIterator[Workshop]:
    repository = folder / "repository.git"
    init = ["git", "init", "-q", "--bare", "-b", "main", str(repository)]
    await asyncio.to_thread(subprocess.run, init, check=True, timeout=30)
    depot = Depot(folder / "depot.git", repository)
    blobs = {
        path: Blob(data if isinstance(data, bytes) else str(data).encode()) for path, data in files.items()
    }
    base = depot.commit(depot.write_tree(None, blobs), (), "base")
    backend = LocalBackend(folder / "sandboxes")
    shop = Workshop(depot, backend, base)
    try:
        mirror = folder / "base.git"
        depot.base_repository(base, mirror)
        mount = Mount(host=str(mirror), inside=BASE_REPOSITORY)
        sandbox = await backend.create(SandboxSpec(name="base", mounts=(mount,)))
        await clone_base(sandbox, base=base)
        name = await backend.snapshot(sandbox, "base")
        shop.snapshot = BaseSnapshot(snapshot=name, commit=base, repository=str(mirror))
        yield shop
    finally:
        await backend.close()
