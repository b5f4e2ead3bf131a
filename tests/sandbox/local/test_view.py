"""What of the host is shown: listed folders, and toolchains without credentials."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.local.view import (
    CREDENTIALS,
    View,
    authorities,
    is_toolchain,
    made_etc,
    made_files,
    toolchains,
)


def toolchain(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    return folder


@pytest.mark.spec("SB-15")
@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_toolchain_that_holds_credentials_is_not_shown(tmp_path: Path, name: str) -> None:
    root = toolchain(tmp_path / "toolchain")
    assert is_toolchain(root)
    (root / name).touch()
    assert not is_toolchain(root)


@pytest.mark.spec("SB-15")
def test_a_home_and_what_holds_homes_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = toolchain(tmp_path / "homes" / "ada")
    toolchain(tmp_path / "homes" / "other")
    (tmp_path / "homes" / "bin").mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert not is_toolchain(home)
    assert not is_toolchain(home.parent)
    assert not is_toolchain(Path("/"))
    assert is_toolchain(toolchain(home / ".pyenv" / "versions" / "3.12"))


@pytest.mark.spec("SB-15")
def test_the_toolchain_of_a_node_on_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = toolchain(tmp_path / "nvm" / "v22")
    node = root / "bin" / "node"
    node.write_text("#!/bin/sh\necho v22\n")
    node.chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "node").symlink_to(node)
    monkeypatch.setenv("PATH", f"{tmp_path / 'links'}:{os.environ['PATH']}")
    assert str(root) in toolchains()
    assert f"{root}/bin" in View(tmp_path / "etc").environment()["PATH"].split(":")


@pytest.mark.spec("SB-15")
async def test_our_own_python_runs_in_a_sandbox(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    sandbox = await backend.create(SandboxSpec(name="one"))
    result = await sandbox.exec(["python3", "-c", "import sys; print(sys.version_info[:2])"], timeout_s=30)
    if str(Path(sys.base_prefix)) in toolchains():
        assert result.stdout.decode() == f"{sys.version_info[:2]}\n"
    assert result.ok
    await backend.close()


async def test_the_sandbox_knows_its_user_and_home(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    sandbox = await backend.create(SandboxSpec(name="one"))
    script = "id -un; cd ~; pwd; hostname; test -w ~ && test -w /tmp && test -w /run && echo writable"
    result = await sandbox.exec(["sh", "-c", script], timeout_s=30)
    assert result.stdout.decode().split() == ["agent", "/home/agent", "sandbox", "writable"]
    await backend.close()


@pytest.mark.spec("SB-15")
async def test_clients_with_certificates_of_their_own_are_told_of_the_hosts(tmp_path: Path) -> None:
    variables = authorities()
    if not variables:
        pytest.skip("needs a host that keeps its certificates in one file")
    backend = LocalBackend(tmp_path / "state")
    sandbox = await backend.create(SandboxSpec(name="trusting"))
    try:
        seen = await sandbox.exec(["sh", "-c", 'cmp "$PIP_CERT" "$NODE_EXTRA_CA_CERTS"'], timeout_s=20)
        data = await sandbox.exec(["cat", variables["SSL_CERT_FILE"]], timeout_s=20, max_output=10_000_000)
    finally:
        await backend.close()
    assert seen.ok
    assert data.stdout == await asyncio.to_thread(Path(variables["SSL_CERT_FILE"]).read_bytes)


@pytest.mark.spec("SB-15")
def test_the_etc_of_sandboxes_is_made_anew_when_the_hosts_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made_etc(tmp_path / "etc")
    assert made_etc(tmp_path / "etc") == first
    assert (first / "passwd").read_text().startswith("agent:")
    assert not (first / "shadow").exists()
    monkeypatch.setattr("ironworks.sandbox.local.view.ETC", ("hostname",))
    second = made_etc(tmp_path / "etc")
    assert second != first
    assert {path.name for path in second.iterdir()} == {*made_files()}
    assert {path.name for path in (tmp_path / "etc").iterdir()} == {first.name, second.name}
