"""The files that hold a limit, in both versions of control groups; that they hold is shown elsewhere."""

from pathlib import Path
from typing import Literal

import pytest

from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local.cgroup import Cgroups, Controller, Group, limit

CASES: list[tuple[Literal[1, 2], Controller, float, dict[str, str]]] = [
    (1, "memory", 1 << 20, {"memory.limit_in_bytes": "1048576"}),
    (2, "memory", 1 << 20, {"memory.max": "1048576"}),
    (1, "pids", 50, {"pids.max": "50"}),
    (2, "pids", 50, {"pids.max": "50"}),
    (1, "cpu", 1.5, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}),
    (2, "cpu", 1.5, {"cpu.max": "150000 100000"}),
]


@pytest.mark.spec("SB-19")
@pytest.mark.parametrize(("version", "controller", "value", "files"), CASES)
def test_a_limit_is_written_as_its_version_wants_it(
    tmp_path: Path, version: Literal[1, 2], controller: Controller, value: float, files: dict[str, str]
) -> None:
    limit(tmp_path, version, controller, value)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


@pytest.mark.spec("SB-19")
def test_swap_is_closed_where_the_kernel_counts_it(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").write_text("max")
    limit(tmp_path, 2, "memory", 1 << 20)
    assert (tmp_path / "memory.swap.max").read_text() == "0"


@pytest.mark.spec("SB-19")
def test_groups_of_a_sandbox_go_with_it_and_those_left_over_go_at_the_next_start() -> None:
    cgroups = Cgroups("ironworks-test-groups")
    if "pids_limit" not in cgroups.capabilities():
        pytest.skip("needs the capability pids_limit")
    kept = cgroups.group(SandboxSpec(name="one", pids=50))
    assert kept.folders
    kept.remove()
    kept.remove()
    assert not any(folder.exists() for folder in kept.folders)
    left = cgroups.group(SandboxSpec(name="two", pids=50))
    Cgroups("ironworks-test-groups")
    assert not any(folder.exists() for folder in left.folders)


def test_a_sandbox_without_limits_needs_no_group() -> None:
    assert Cgroups("ironworks-test-groups").group(SandboxSpec(name="one")) == Group(())
