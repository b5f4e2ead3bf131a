"""The base snapshot: the clone with its dependencies, from which every sandbox boots. Kept by its content."""

import asyncio
import hashlib
import logging
import re
import time
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ironworks.core.crash import crash_point
from ironworks.core.errors import BusyError, ConfigError, SandboxError
from ironworks.core.events import BaseSnapshotMade
from ironworks.core.models import Model, json_bytes
from ironworks.core.ports import Mount, Sandbox, SnapshotInfo
from ironworks.egress.grant import Grant
from ironworks.engine.cache import warm
from ironworks.engine.floor import Floor
from ironworks.sandbox.checkout import HOME, clone_base, place, settle
from ironworks.verify.suite import BaseSnapshot

BASE_MOUNT = "/ironworks/base.git"
PREPARE_TIMEOUT_S = 3600
log = logging.getLogger(__name__)
FORMAT = 3
"""Of base snapshots: one that was made otherwise is not used."""
KEPT = 5
"""So many of the newest are kept of those that no longer serve."""
DECIDING = [
    "*.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "pnpm-lock.yaml",
    "package.json",
    ".npmrc",
    "*requirements*.txt",
    "*requirements*.in",
    "constraints*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    ".python-version",
    ".node-version",
    ".nvmrc",
    ".tool-versions",
    "Cargo.toml",
    "go.mod",
    "go.sum",
    "Gemfile",
    "Makefile",
]
"""Names of files that say what is installed, in any folder."""
SCRUBBED = [
    ".netrc",
    ".git-credentials",
    ".config/gh",
    ".docker/config.json",
    ".pypirc",
    ".*_history",
    ".lesshst",
    ".wget-hsts",
    ".ssh",
    ".aws",
]
"""What may hold a secret or a word of one, below the home folder."""


class _Built(Model):
    """What a base snapshot's preparation left in the tree, as `settle` tells it."""

    patterns: tuple[str, ...] = ()


async def base_snapshot(floor: Floor, commit: str, repository: Path) -> BaseSnapshot:
    """The base snapshot for `commit`, whose history is in the bare `repository`.

    One with the same content is used again; where only the commit is another one its checkout is brought up
    to date, and nothing is installed anew. ConfigError when `prepare` fails.
    """
    family = f"base-{await _key(floor, commit)}"
    name = f"{family}-{commit[:12]}"
    if not await floor.parts.backend.has_snapshot(name):
        crash_point("base.before_prepare")
        began = time.monotonic()
        older = _oldest(await floor.parts.backend.snapshots(), family)
        prepare_s = await _make(floor, commit, repository, name, older)
        made = BaseSnapshotMade(
            run=floor.run,
            commit=commit,
            snapshot=name,
            duration_s=time.monotonic() - began,
            prepare_s=prepare_s,
            reused=older or "",
        )
        await floor.record(made, key=f"{floor.run}/snapshot/{name}")
        await _drop_old(floor, name)
        crash_point("base.after_prepare")
    return BaseSnapshot(
        snapshot=name, commit=commit, repository=str(repository), built=(await _built(floor, name)).patterns
    )


async def _drop_old(floor: Floor, keep: str) -> None:
    """Remove base snapshots but `keep`, the newest, and those on which something rests."""
    found = [each for each in await floor.parts.backend.snapshots() if each.name.startswith("base-")]
    for each in sorted(found, key=lambda each: each.created_at, reverse=True)[KEPT:]:
        if each.name != keep:
            try:
                await floor.parts.backend.remove_snapshot(each.name)
            except BusyError:
                continue


async def _key(floor: Floor, commit: str) -> str:
    """Digest of all that decides what `prepare` installs."""
    prepare = floor.settings.project.prepare
    files = await asyncio.to_thread(floor.parts.depot.files, commit) if prepare else {}
    named = {
        word.removeprefix("./") for command in prepare for word in re.split(r"[\s;&|<>()'\"=]+", command)
    }
    deciding = {path: entry.oid for path, entry in files.items() if path in named or _decides(path)}
    sandbox = floor.settings.sandbox.model_dump(include={"backend", "image", "runtime"})
    content = await asyncio.to_thread(floor.parts.backend.content)
    recipe = json_bytes([FORMAT, prepare, sandbox, content, deciding])
    return hashlib.sha256(recipe).hexdigest()[:16]


def _decides(path: str) -> bool:
    name = PurePosixPath(path).name
    return any(fnmatchcase(name, pattern) for pattern in DECIDING)


def _oldest(snapshots: list[SnapshotInfo], family: str) -> str | None:
    """The one on which the others of its family rest."""
    found = [each for each in snapshots if each.name.startswith(f"{family}-")]
    return min(found, key=lambda each: each.created_at).name if found else None


async def _make(floor: Floor, commit: str, repository: Path, name: str, older: str | None) -> float:
    """Makes the snapshot; how many seconds the project's own commands took."""
    if older is not None:
        try:
            await _bring_up(floor, commit, repository, name, older)
            return 0.0
        except SandboxError:
            log.warning("%s cannot be brought up to date: the base is prepared anew", older)
    return await _prepare(floor, commit, repository, name)


async def _bring_up(floor: Floor, commit: str, repository: Path, name: str, older: str) -> None:
    built = await _built(floor, older)
    build = f"{name}-build"
    await floor.parts.backend.destroy(build)
    sandbox = await floor.parts.backend.create(
        floor.spec(build, snapshot=older, mounts=[Mount(host=str(repository), inside=BASE_MOUNT)])
    )
    try:
        await place(sandbox, floor.parts.depot, commit, base=commit, built=built.patterns)
        await floor.remember(f"snapshot/{name}/built", built)
        await floor.parts.backend.snapshot(sandbox, name)
    finally:
        await floor.parts.backend.destroy(build)


async def _prepare(floor: Floor, commit: str, repository: Path, name: str) -> float:
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
        await warm(station.sandbox, floor.settings.project.prepare, station.attachment.env)
        await _scrub(station.sandbox)
        await floor.remember(f"snapshot/{name}/built", built)
        await floor.parts.backend.snapshot(station.sandbox, name)
    await floor.parts.backend.destroy(f"{name}-build")
    return prepare_s


async def _scrub(sandbox: Sandbox) -> None:
    """No key ever comes into a sandbox; what a project's own commands may have written of one goes too."""
    await sandbox.kill_all()
    await sandbox.exec(["sh", "-c", f"cd {HOME} && rm -rf {' '.join(SCRUBBED)}"], cwd="/", timeout_s=60)


async def _built(floor: Floor, name: str) -> _Built:
    return _Built.model_validate(await floor.recall(f"snapshot/{name}/built") or {})


class PrepareFailed(ConfigError):
    """A `prepare` command failed in the base sandbox."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(
            f"`{command}` failed while the base snapshot was prepared:\n{output}",
            hint='a registry it needs must be allowed: [network] prepare = ["pip", ..]',
        )
