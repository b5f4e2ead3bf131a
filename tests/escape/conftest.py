"""Sandboxes of every backend that has nothing but the gateway's listener for a way out."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.contract.sandbox.conftest import MakeBackend, Require, new_backend, require
from tests.contract.sandbox.conftest import backend as any_backend

from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec

__all__ = ["MakeBackend", "Require", "any_backend", "new_backend", "require"]


@pytest.fixture
def backend(any_backend: SandboxBackend) -> SandboxBackend:
    if "listener" not in any_backend.capabilities():
        pytest.skip("needs the capability listener")
    return any_backend


@pytest.fixture(params=["plain", pytest.param("transparent", marks=pytest.mark.slow)])
async def sandbox(request: pytest.FixtureRequest, backend: SandboxBackend) -> Sandbox:
    transparent = request.param == "transparent"
    if transparent and "transparent" not in backend.capabilities():
        pytest.skip("needs the capability transparent")
    return await backend.create(SandboxSpec(name="one", transparent=transparent))


@pytest.fixture
def neighbour() -> Iterator[str]:
    """The mark of a process of the host, which runs while the test does."""
    mark = f"ironworks-neighbour-{os.getpid()}"
    program = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", mark]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield mark
        process.kill()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Filling an engine's own storage takes minutes, and what a hosted service holds is its own to show."""
    for item in items:
        if item.path.parent.name == "escape" and "upstash" in item.name:
            item.add_marker(pytest.mark.skip(reason="needs the capability listener"))
        if item.path.name == "test_load.py" and "docker" in item.name:
            item.add_marker(pytest.mark.soak)
            item.add_marker(pytest.mark.timeout(900))
