"""An emulator for each test, where the host can start boxes."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.testing.upstash.client import Client

from ironworks.core.errors import IronworksError
from ironworks.sandbox.local.boot import find_bwrap
from ironworks.testing.upstash import Options, UpstashEmulator
from ironworks.testing.upstash.emulator import KEY


@pytest.fixture(scope="session", autouse=True)
def _namespaces() -> None:
    try:
        bwrap = find_bwrap()
    except IronworksError as error:
        pytest.skip(f"needs bubblewrap: {error}")
    tried = subprocess.run(
        [
            bwrap,
            "--unshare-user",
            "--unshare-all",
            "--uid",
            "1000",
            "--bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "true",
        ],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip("needs user namespaces")


@pytest.fixture
def options() -> Options:
    """Overridden by a test that wants others."""
    return Options()


@pytest.fixture
async def emulator(tmp_path: Path, options: Options) -> AsyncIterator[UpstashEmulator]:
    async with UpstashEmulator(
        tmp_path / "boxes of ours", keys=(KEY, "sk-test-other"), options=options
    ) as made:
        yield made
    assert not made.boxes()


@pytest.fixture
def client(emulator: UpstashEmulator) -> Client:
    return Client(emulator.base_url)
