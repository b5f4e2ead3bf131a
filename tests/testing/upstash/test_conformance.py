"""The vendor's own tests of its client, from the source distribution of that client, run on the emulator."""

import asyncio
import os
import re
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from ironworks.testing.upstash import Options, UpstashEmulator

CLIENT = "upstash-box>=0.4,<0.5"
NEEDED = (CLIENT, "websockets<18", "pytest", "pytest-asyncio")
REPOSITORY = "https://github.com/octocat/Hello-World"
EXCLUDED = {"test_browser_async.py": "needs a hosted browser"}
"""Files of the vendor's tests that are left out, and why."""
PASSED = 27
"""Of version 0.4.0."""


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client's sources, and an environment `env` with the client in it."""
    folder = tmp_path_factory.mktemp("vendor")
    venv.create(folder / "env", with_pip=True)
    pip = [str(folder / "env/bin/python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    source = ["download", "--no-deps", "--no-binary", ":all:", "-d", str(folder), CLIENT]
    for arguments in (["install", *NEEDED], source):
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"needs a package registry that has {CLIENT}: {done.stderr[-300:]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "source", filter="data")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Stands in for the public repository that one of the tests clones."""
    bare = tmp_path / "hello.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "master", bare], check=True)
    tree = subprocess.run(["git", "-C", bare, "mktree"], input=b"", capture_output=True, check=True).stdout
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.test"]
    commit = ["git", "-C", str(bare), *identity, "commit-tree", "-m", "one", tree.decode().strip()]
    sha = subprocess.run(commit, capture_output=True, check=True).stdout.decode().strip()
    subprocess.run(["git", "-C", bare, "update-ref", "refs/heads/master", sha], check=True)
    return bare


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("SB-59")
async def test_the_vendors_integration_tests_pass(vendor: Path, repository: Path, tmp_path: Path) -> None:
    options = Options(repositories={REPOSITORY: repository})
    async with UpstashEmulator(tmp_path / "boxes", options=options) as emulator:
        environment = {
            "PATH": os.defpath,
            "HOME": str(tmp_path),
            "UPSTASH_BOX_API_KEY": "sk-test-box",
            "UPSTASH_BOX_BASE_URL": emulator.base_url,
            "UPSTASH_DISABLE_TELEMETRY": "1",
        }
        process = await asyncio.create_subprocess_exec(
            *pytest_command(vendor, tmp_path),
            cwd=next((vendor / "source").iterdir()),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), 300)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        left_over = [box.id for box in emulator.boxes()]
    text = said.decode("utf-8", "replace")
    counts = re.findall(r"(\d+) (passed|failed|error|skipped)", text)
    counted = {word: int(count) for count, word in counts}
    assert process.returncode == 0, text[-5000:]
    assert counted.get("passed", 0) >= PASSED and "skipped" not in counted, text[-2000:]
    assert left_over == []


def pytest_command(vendor: Path, tmp_path: Path) -> list[str]:
    ignored = [f"--ignore=tests/integration/{name}" for name in EXCLUDED]
    own = ["-o", "addopts=", "--import-mode=importlib", "-m", "integration", "-q", "-p", "no:cacheprovider"]
    place = f"--basetemp={tmp_path / 'vendor'}"
    return [str(vendor / "env/bin/python"), "-m", "pytest", *own, *ignored, place, "tests/integration"]
