"""The same promises for every sandbox backend there is."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ironworks.core.ports import Capability, Sandbox, SandboxBackend, SandboxSpec
from ironworks.sandbox.docker import DockerBackend
from ironworks.sandbox.local import LocalBackend
from ironworks.testing.engine import IMAGE, MissingEngine, docker_engine

LONG_IN_CONTAINERS = ("test_seventy_snapshots",)
MakeBackend = Callable[[], SandboxBackend]
Require = Callable[[Capability], None]


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a Docker engine of this session's own."""
    try:
        starting = docker_engine()
        address = starting.__enter__()
    except MissingEngine as error:
        pytest.skip(f"needs {error}")
    yield address
    starting.__exit__(None, None, None)


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.slow)])
def new_backend(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBackend:
    """Makes a backend; every one of a test stands on the same state, as after a restart."""
    state = tmp_path / "state of sandboxes"
    if request.param == "local":
        return lambda: LocalBackend(state)
    address = request.getfixturevalue("engine")
    return lambda: DockerBackend(state, image=IMAGE, address=address)


@pytest.fixture
async def backend(new_backend: MakeBackend) -> AsyncIterator[SandboxBackend]:
    backend = new_backend()
    if "create" not in backend.capabilities():
        pytest.skip("needs user namespaces and overlays: see `ironworks doctor`")
    yield backend
    await backend.close()


@pytest.fixture
async def sandbox(backend: SandboxBackend) -> Sandbox:
    return await backend.create(SandboxSpec(name="one"))


@pytest.fixture
def require(backend: SandboxBackend) -> Require:
    def check(capability: Capability) -> None:
        if capability not in backend.capabilities():
            pytest.skip(f"needs the capability {capability}")

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes an engine minutes."""
    for item in items:
        if "docker" in item.name and item.name.startswith(LONG_IN_CONTAINERS):
            item.add_marker(pytest.mark.soak)
            item.add_marker(pytest.mark.timeout(900))
