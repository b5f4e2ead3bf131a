"""Which sandbox backend the settings name. The one place where one is chosen."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ironworks.core.errors import ConfigError
from ironworks.core.ports import SandboxBackend
from ironworks.core.settings import SandboxSettings


def make_backend(settings: SandboxSettings, state: Path) -> SandboxBackend:
    """The backend whose disks and records are below `state`; ConfigError for a setting it cannot heed."""
    return BACKENDS[settings.backend](settings, state)


def _local(settings: SandboxSettings, state: Path) -> SandboxBackend:
    from ironworks.sandbox.local.backend import LocalBackend

    _refuse(settings, "image", "runtime")
    return LocalBackend(state / "sandboxes")


def _docker(settings: SandboxSettings, state: Path) -> SandboxBackend:
    from ironworks.sandbox.docker.backend import DockerBackend

    _refuse(settings, "runtime")
    return DockerBackend(state / "containers", image=settings.image)


def _upstash(settings: SandboxSettings, state: Path) -> SandboxBackend:
    from ironworks.sandbox.upstash.backend import UpstashBackend

    _refuse(settings, "image")
    return UpstashBackend(state / "boxes", runtime=settings.runtime)


def _refuse(settings: SandboxSettings, *names: str) -> None:
    """A setting that would do nothing is an error, not a surprise."""
    for name in names:
        if getattr(settings, name):
            raise ConfigError(
                f"[sandbox] {name} means nothing to the {settings.backend} backend",
                hint=f"remove `{name}`",
            )


BACKENDS: Mapping[str, Callable[[SandboxSettings, Path], SandboxBackend]] = {
    "local": _local,
    "docker": _docker,
    "upstash": _upstash,
}
