"""The same promises for every sandbox backend there is."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ironworks.core.ports import Capability, Sandbox, SandboxBackend, SandboxSpec
from ironworks.sandbox.docker import DockerBackend
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.upstash import UpstashBackend
from ironworks.testing.engine import IMAGE
from ironworks.testing.upstash import Options, UpstashEmulator
from ironworks.testing.upstash.emulator import KEY

LONG_ELSEWHERE = ("test_seventy_snapshots",)
MakeBackend = Callable[[], SandboxBackend]
Require = Callable[[Capability], None]


@pytest.fixture
async def boxes(tmp_path: Path) -> AsyncIterator[UpstashEmulator]:
    """A hosted service of this test's own."""
    async with UpstashEmulator(tmp_path / "service", options=Options(max_boxes=500)) as emulator:
        yield emulator


@pytest.fixture(
    params=["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("docker", "upstash"))]
)
def new_backend(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBackend:
    """Makes a backend; every one of a test stands on the same state, as after a restart."""
    state = tmp_path / "state of sandboxes"
    if request.param == "local":
        return lambda: LocalBackend(state)
    if request.param == "upstash":
        url = request.getfixturevalue("boxes").base_url
        return lambda: UpstashBackend(state, base_url=url, api_key=KEY)
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
    """What takes minutes elsewhere."""
    for item in items:
        if "local" not in item.name and item.name.startswith(LONG_ELSEWHERE):
            item.add_marker(pytest.mark.soak)
            item.add_marker(pytest.mark.timeout(900))
