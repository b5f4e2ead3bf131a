"""The same promises for every sandbox backend there is."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ironworks.core.ports import Capability, Sandbox, SandboxBackend, SandboxSpec
from ironworks.sandbox.local import LocalBackend

MakeBackend = Callable[[], SandboxBackend]
Require = Callable[[Capability], None]


@pytest.fixture(params=["local"])
def new_backend(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBackend:
    """Makes a backend; every one of a test stands on the same state, as after a restart."""
    makers: dict[str, MakeBackend] = {"local": lambda: LocalBackend(tmp_path / "state of sandboxes")}
    return makers[request.param]


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
