"""The engine's API, in our words and with our errors. Every call blocks; images are never fetched."""

import contextlib
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

from ironworks.core.errors import CapabilityError, ConfigError, MissingError, SandboxError
from ironworks.core.ports import Capability
from ironworks.sandbox.docker.address import answering_engine, engine_sockets

TIMEOUT_S = 120
STATE, NAME, BELOW, KIND = "ironworks.state", "ironworks.name", "ironworks.below", "ironworks.kind"
"""Labels: whose it is, which one, what it rests on, and for images `snapshot` or `carry`."""


class Engine:
    """One engine, and of what is in it only what carries the label of one state folder."""

    def __init__(self, address: str, state: str) -> None:
        """`address` is a path, or empty for the first that answers. ConfigError when none does."""
        try:
            import docker
        except ImportError as error:
            raise ConfigError(
                "the docker backend needs the docker package", hint="pip install 'ironworks[docker]'"
            ) from error
        self._errors = docker.errors
        named = [address.removeprefix("unix://")] if address else engine_sockets()
        path = answering_engine(named)
        if path is None:
            raise CapabilityError(
                f"no container engine answers at {address or 'any socket of this machine'}",
                hint="start Docker or Podman, or name its socket in DOCKER_HOST",
            )
        self._state = state
        self._api = docker.APIClient(base_url=f"unix://{path}", version="auto", timeout=TIMEOUT_S)

    def close(self) -> None:
        self._api.close()

    def version(self) -> str:
        with self._told("say what it is"):
            told = self._api.version()
        return f"{told.get('Platform', {}).get('Name') or 'Docker'} {told['Version']}"

    def capabilities(self) -> frozenset[Capability]:
        """What the engine says of its host."""
        info = self._api.info()
        found: set[Capability] = {
            "create",
            "pause",
            "usage",
            "live_snapshot",
            "mounts",
            "listener",
        }
        limits: tuple[tuple[str, Capability], ...] = (
            ("MemoryLimit", "memory_limit"),
            ("PidsLimit", "pids_limit"),
            ("CpuCfsQuota", "cpu_limit"),
        )
        return frozenset(found | {capability for field, capability in limits if info.get(field)})

    # -- containers --------------------------------------------------------------------------------

    def containers(self, *, size: bool = False) -> list[dict[str, Any]]:
        with self._told("list its containers"):
            filters = {"label": f"{STATE}={self._state}"}
            return list(self._api.containers(all=True, size=size, filters=filters))

    def container(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of ours of that name."""
        try:
            with self._told("look at a container"):
                return dict(self._api.inspect_container(self.container_name(name)))
        except MissingError:
            return None

    def container_name(self, name: str) -> str:
        return f"ironworks-{self._state}-{name}"

    def make(
        self, name: str, image: str, labels: Mapping[str, str], host: Mapping[str, Any], argv: list[str]
    ) -> None:
        """MissingError, with what to do, when there is no such image here."""
        with self._told(f"make a container from {image!r}"):
            self._api.create_container_from_config(
                {
                    "Image": image,
                    "Entrypoint": argv,
                    "Cmd": [],
                    "User": owner(),
                    "WorkingDir": "/",
                    "Hostname": "sandbox",
                    "Labels": {STATE: self._state, NAME: name, **labels},
                    "Healthcheck": {"Test": ["NONE"]},
                    "HostConfig": dict(host),
                },
                self.container_name(name),
            )

    def add_folders(self, name: str, *folders: str) -> None:
        """Make folders that belong to the one who runs there; those that exist are opened to it again."""
        data = BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for folder in folders:
                member = tarfile.TarInfo(folder.strip("/"))
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                member.uid, member.gid = map(int, owner().split(":"))
                archive.addfile(member)
        with self._told("add folders to a container"):
            self._api.put_archive(self.container_name(name), "/", data.getvalue())

    def start(self, name: str) -> None:
        with self._told("start a container"):
            self._api.start(self.container_name(name))

    def last_words(self, name: str) -> str:
        """What a container printed before it ended, and its exit code."""
        with contextlib.suppress(Exception):
            code = self._api.inspect_container(self.container_name(name))["State"]["ExitCode"]
            said = self._api.logs(self.container_name(name), tail=20).decode("utf-8", "replace").strip()
            return f"{said[-1000:]} (exit code {code})"
        return "it did not answer"

    def end(self, name: str) -> None:
        """Kill it and wait until it has ended; nothing when it does not run or is not there."""
        with contextlib.suppress(MissingError), self._told("end a container"):
            try:
                self._api.kill(self.container_name(name))
            except self._errors.APIError as error:
                if error.status_code != 409:
                    raise
            self._api.wait(self.container_name(name), timeout=TIMEOUT_S)

    def remove(self, name: str) -> None:
        with contextlib.suppress(MissingError), self._told("remove a container"):
            self._api.remove_container(self.container_name(name), v=True, force=True)

    # -- images ------------------------------------------------------------------------------------

    def image_name(self, name: str) -> str:
        return f"ironworks-{self._state}:{tag(name)}"

    def images(self) -> list[dict[str, Any]]:
        with self._told("list its images"):
            return list(self._api.images(filters={"label": f"{STATE}={self._state}"}))

    def image(self, image: str) -> dict[str, Any] | None:
        try:
            with self._told("look at an image"):
                return dict(self._api.inspect_image(image))
        except MissingError:
            return None

    def commit(self, name: str, image: str, labels: Mapping[str, str]) -> str:
        """What is on a container's disk, as an image of ours; its name."""
        with self._told("take a snapshot"):
            self._api.commit(
                self.container_name(name),
                repository=f"ironworks-{self._state}",
                tag=tag(image),
                pause=False,
                conf={"Labels": {STATE: self._state, NAME: image, **labels}},
            )
        return self.image_name(image)

    def flatten(self, name: str, image: str, labels: Mapping[str, str]) -> str:
        """The same in a single layer: an image can have 127 of them at most."""
        texts = {STATE: self._state, NAME: image, **labels}
        changes = [f"LABEL {key}={json.dumps(text)}" for key, text in texts.items()]
        with self._told("take a snapshot"):
            stream = self._api.export(self.container_name(name), chunk_size=1 << 20)
            self._api.import_image_from_stream(
                stream, repository=f"ironworks-{self._state}", tag=tag(image), changes=changes
            )
        return self.image_name(image)

    def remove_image(self, image: str) -> None:
        with contextlib.suppress(MissingError), self._told("remove an image"):
            self._api.remove_image(image, force=False, noprune=False)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Its errors as ours."""
        import requests

        try:
            yield
        except self._errors.NotFound as error:
            raise MissingError(
                f"the engine cannot {what}: {error.explanation}",
                hint="fetch or build the image yourself: nothing is fetched without your asking",
            ) from error
        except self._errors.APIError as error:
            raise SandboxError(f"the engine cannot {what}: {error.explanation}") from error
        except requests.exceptions.RequestException as error:
            raise SandboxError(f"the engine does not answer: {error}") from error


def tag(name: str) -> str:
    """A tag may not begin as a name may."""
    return f"s.{name}"


def owner() -> str:
    """Who runs in a container, as `uid:gid`: never root, and where it can be the user whose files it sees."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else "1000:1000"
