"""What only a sandbox on the host's own file system has to heed."""

from pathlib import Path

import pytest

from ironworks.core.errors import SandboxError
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend


@pytest.mark.spec("SB-28")
async def test_what_runs_is_ended_before_the_file_system_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(tmp_path)
    one = await backend.create(SandboxSpec(name="one", disk_bytes=1 << 30))
    assert (await one.exec(["sleep", "1"], timeout_s=40)).ok
    monkeypatch.setattr("ironworks.sandbox.local.sandbox.LAST_BYTES", 1 << 62)
    result = await one.exec(["sleep", "600"], timeout_s=40)
    assert (result.exit_code, (await one.usage()).disk_kills >= 1) == (-9, True)
    await backend.close()


@pytest.mark.spec("SB-25")
async def test_a_live_snapshot_of_what_does_not_live_is_an_error_and_leaves_none(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    one = await backend.create(SandboxSpec(name="one"))
    await one.stop()
    with pytest.raises(SandboxError):
        await backend.snapshot(one, "stopped", live=True)
    await backend.snapshot(one, "frozen")
    with pytest.raises(SandboxError, match="no live sandbox"):
        await backend.snapshot(one, "gone", live=True)
    assert [each.name for each in await backend.snapshots()] == ["frozen"]
    await backend.close()
