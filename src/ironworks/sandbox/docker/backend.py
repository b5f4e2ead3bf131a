"""Sandboxes in containers: an engine makes them, our own pid 1 lives in them."""

import asyncio
import contextlib
import hashlib
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ironworks.core.crash import crash_point
from ironworks.core.errors import BusyError, CapabilityError, ConfigError, IronworksError, MissingError
from ironworks.core.ports import Capability, HostCheck, Sandbox, SandboxInfo, SandboxSpec, SnapshotInfo
from ironworks.sandbox.docker.boot import COMMAND, OWN_FOLDERS, Rendezvous, boot, host_config
from ironworks.sandbox.docker.engine import BELOW, KIND, NAME, Engine, owner
from ironworks.sandbox.docker.sandbox import DockerSandbox
from ironworks.sandbox.local.cgroup import groups_of, tag_of
from ironworks.sandbox.local.disk import checked

MOST_LAYERS = 100
NO_IMAGE = "name one that is here and has python3 and git: `image` under [sandbox], or --image"
FACTS = "ironworks.facts"
"""Label of a container: what it was made with, as a digest."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DockerBackend:
    """`SandboxBackend` on a container engine. One per state directory, used from one event loop."""

    def __init__(self, root: Path, *, image: str = "", address: str = "") -> None:
        """`image` boots what has no snapshot and names none; `address` is the engine's socket, else it is
        looked for."""
        self._root = root.absolute()
        self._image = image
        self._address = address
        self._notes = self._root / "rests-on"
        self._running: dict[str, DockerSandbox] = {}

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self._address, tag_of(self._root).removeprefix("ironworks-"))

    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @cached_property
    def _capabilities(self) -> frozenset[Capability]:
        try:
            return self._engine.capabilities()
        except IronworksError:
            return frozenset()

    def doctor(self) -> list[HostCheck]:
        try:
            engine = self._engine
            found = [HostCheck(name="engine", ok=True, detail=engine.version())]
            image = engine.image(self._image) if self._image else None
        except IronworksError as error:
            return [HostCheck(name="engine", ok=False, detail=error.message, fix=error.hint)]
        detail = self._image or "none is named"
        fix = f"docker pull {self._image}, or build it" if self._image else NO_IMAGE
        return [*found, HostCheck(name="image", ok=image is not None, detail=detail, fix=fix)]

    def content(self) -> str:
        found = self._engine.image(self._image) if self._image else None
        return str(found["Id"]) if found else ""

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        checked(spec.name)
        self._refuse(spec)
        crash_point("sandbox.before_create")
        starting = asyncio.ensure_future(self._create(spec))
        try:
            sandbox = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(IronworksError):
                await (await starting).stop()
            raise
        crash_point("sandbox.after_create")
        return sandbox

    async def snapshot(self, sandbox: Sandbox, name: str, *, live: bool = False) -> str:
        checked(name)
        crash_point("sandbox.before_snapshot")
        if not live:
            await sandbox.stop()
            self._running.pop(sandbox.name, None)
            await asyncio.to_thread(self._freeze, sandbox.name, name)
        elif (running := self._running.get(sandbox.name)) is not None:
            async with running.held():
                await asyncio.shield(asyncio.to_thread(self._commit, sandbox.name, name))
        else:
            raise MissingError(f"there is no live sandbox {sandbox.name!r} to take a snapshot of")
        crash_point("sandbox.after_snapshot")
        return name

    async def has_snapshot(self, name: str) -> bool:
        return await asyncio.to_thread(self._snapshot, checked(name)) is not None

    async def has_disk(self, name: str) -> bool:
        return await asyncio.to_thread(self._engine.container, checked(name)) is not None

    async def sandboxes(self) -> list[SandboxInfo]:
        found = await asyncio.to_thread(self._engine.containers, size=True)
        infos = (
            SandboxInfo(
                name=each["Labels"][NAME],
                snapshot=self._below(each["Labels"][NAME]) or None,
                running=each["State"] == "running",
                disk_bytes=int(each.get("SizeRw") or 0),
                created_at=datetime.fromtimestamp(each["Created"], UTC),
            )
            for each in found
        )
        return sorted(infos, key=lambda info: info.name)

    async def snapshots(self) -> list[SnapshotInfo]:
        images = [each for each in await asyncio.to_thread(self._engine.images) if is_snapshot(each)]
        sizes = {each["Labels"][NAME]: int(each["Size"]) for each in images}
        infos = (
            SnapshotInfo(
                name=each["Labels"][NAME],
                below=(below := each["Labels"].get(BELOW) or None),
                disk_bytes=max(0, int(each["Size"]) - sizes.get(below or "", 0)),
                created_at=datetime.fromtimestamp(each["Created"], UTC),
            )
            for each in images
        )
        return sorted(infos, key=lambda info: info.name)

    async def remove_snapshot(self, name: str) -> None:
        await asyncio.to_thread(self._remove_snapshot, checked(name))

    async def destroy(self, name: str) -> None:
        checked(name)
        crash_point("sandbox.before_destroy")
        await self._stop(name)
        await asyncio.to_thread(self._remove, name)
        crash_point("sandbox.after_destroy")

    async def collect(self, keep: frozenset[str]) -> int:
        in_use = {name for name, sandbox in self._running.items() if not sandbox.stopped}
        found = await asyncio.to_thread(self._engine.containers)
        names = [name for each in found if (name := each["Labels"][NAME]) not in keep | in_use]
        for name in names:
            await self.destroy(name)
        return len(names)

    async def close(self) -> None:
        results = await asyncio.gather(*map(self._stop, list(self._running)), return_exceptions=True)
        if "_engine" in self.__dict__:
            self._engine.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _refuse(self, spec: SandboxSpec) -> None:
        """Never make a sandbox that lacks what was asked for."""
        if spec.transparent:
            raise CapabilityError("a container does not catch programs that know no proxy")
        if spec.disk_bytes is not None:
            raise CapabilityError("a container's disk cannot be limited here", hint="remove the `disk` limit")
        limits: tuple[tuple[Capability, object], ...] = (
            ("memory_limit", spec.memory_bytes),
            ("pids_limit", spec.pids),
            ("cpu_limit", spec.cpus),
        )
        for capability, value in limits:
            if value is not None and capability not in self.capabilities():
                raise CapabilityError(f"the engine's host has no {capability.replace('_', ' ')}")

    async def _create(self, spec: SandboxSpec) -> DockerSandbox:
        await self._stop(spec.name)
        rendezvous = Rendezvous(self._root / "containers" / spec.name)
        image = await asyncio.to_thread(self._made, spec, rendezvous)
        try:
            booted = await boot(self._engine, spec.name, rendezvous)
        except BaseException:
            await asyncio.to_thread(self._engine.end, spec.name)
            raise
        group = await asyncio.to_thread(self._group, spec.name)
        own = dict(variable.split("=", 1) for variable in image["Config"]["Env"] or () if "=" in variable)
        env = environment() | own | spec.env
        sandbox = DockerSandbox(spec.name, env, booted, self._engine, group)
        self._running[spec.name] = sandbox
        return sandbox

    def _made(self, spec: SandboxSpec, rendezvous: Rendezvous) -> dict[str, Any]:
        """The container of that name, at rest and as `spec` wants it; the image it stands on."""
        self._engine.end(spec.name)
        rendezvous.make()
        host = host_config(spec, rendezvous)
        facts = hashlib.sha256(repr((host, owner())).encode()).hexdigest()
        old = self._engine.container(spec.name)
        if old is None:
            image = self._image_of(spec)
            self._rest_on(spec.name, spec.snapshot or "")
        elif old["Config"]["Labels"].get(FACTS) == facts:
            self._engine.add_folders(spec.name, *OWN_FOLDERS)
            return self._known(old["Image"])
        else:
            # What a container may see and use is fixed when it is made: its disk moves into a new one.
            image = self._engine.commit(spec.name, f"{spec.name}-carried", {KIND: "carry"})
            self._engine.remove(spec.name)
        found = self._known(image)
        self._engine.make(spec.name, image, {FACTS: facts}, host, COMMAND)
        self._engine.add_folders(spec.name, *OWN_FOLDERS)
        return found

    def _image_of(self, spec: SandboxSpec) -> str:
        if spec.snapshot is not None:
            if self._snapshot(spec.snapshot) is None:
                raise MissingError(f"there is no snapshot {spec.snapshot!r}")
            return self._engine.image_name(spec.snapshot)
        image = spec.image or self._image
        if not image:
            raise ConfigError(
                "no image is named for the docker backend",
                hint=NO_IMAGE,
            )
        return image

    def _known(self, image: str) -> dict[str, Any]:
        found = self._engine.image(image)
        if found is None:
            raise MissingError(
                f"there is no image {image!r} on this engine",
                hint=f"nothing is fetched by itself: docker pull {image}, or build it",
            )
        return found

    def _freeze(self, name: str, snapshot: str) -> None:
        if self._snapshot(snapshot) is None:
            self._commit(name, snapshot)
            self._rest_on(name, snapshot)

    def _commit(self, name: str, snapshot: str) -> None:
        """An existing snapshot wins."""
        if self._snapshot(snapshot) is not None:
            return
        container = self._engine.container(name)
        if container is None:
            raise MissingError(f"there is no disk {name!r}")
        labels = {KIND: "snapshot", BELOW: self._below(name)}
        layers = len(self._known(container["Image"])["RootFS"].get("Layers") or ())
        take = self._engine.commit if layers < MOST_LAYERS else self._engine.flatten
        take(name, snapshot, labels)

    def _snapshot(self, name: str) -> dict[str, Any] | None:
        found = self._engine.image(self._engine.image_name(name))
        return found if found and found["Config"]["Labels"].get(KIND) == "snapshot" else None

    def _remove_snapshot(self, name: str) -> None:
        disks = [each["Labels"][NAME] for each in self._engine.containers()]
        users = [disk for disk in disks if self._below(disk) == name]
        users += [each["Labels"][NAME] for each in self._engine.images() if each["Labels"].get(BELOW) == name]
        if users:
            raise BusyError(f"snapshot {name!r} is in use: {', '.join(sorted(users)[:5])} rests on it")
        self._engine.remove_image(self._engine.image_name(name))

    def _remove(self, name: str) -> None:
        self._engine.remove(name)
        self._engine.remove_image(self._engine.image_name(f"{name}-carried"))
        Rendezvous(self._root / "containers" / name).remove()
        (self._notes / name).unlink(missing_ok=True)

    def _rest_on(self, name: str, snapshot: str) -> None:
        """Note on which snapshot a disk rests: an engine's labels cannot be changed."""
        self._notes.mkdir(parents=True, exist_ok=True)
        (self._notes / name).write_text(snapshot, "ascii")

    def _below(self, name: str) -> str:
        try:
            return (self._notes / name).read_text("ascii")
        except FileNotFoundError:
            return ""

    def _group(self, name: str) -> Any:
        found = self._engine.container(name)
        return groups_of(found["State"]["Pid"] if found else 0)

    async def _stop(self, name: str) -> None:
        if name in self._running:
            await self._running.pop(name).stop()


def is_snapshot(image: dict[str, Any]) -> bool:
    return (image["Labels"] or {}).get(KIND) == "snapshot"


def environment() -> dict[str, str]:
    """What every command has, unless the image or the one who asks says otherwise."""
    return {
        "PATH": PATH,
        "HOME": "/home/agent",
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
        # The base repository that is shown belongs to the host's user.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
