"""The files that hold a limit, in both versions of control groups; that they hold is shown elsewhere."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import cgroup
from ironworks.sandbox.local.cgroup import (
    Cgroups,
    Controller,
    Group,
    Hierarchy,
    first_of_each,
    limit,
    ours,
    places,
)

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
    Cgroups("ironworks-test-groups", lambda name: name == "two")
    assert all(folder.exists() for folder in left.folders)
    Cgroups("ironworks-test-groups")
    assert not any(folder.exists() for folder in left.folders)


def test_a_sandbox_without_limits_needs_no_group() -> None:
    assert Cgroups("ironworks-test-groups").group(SandboxSpec(name="one")) == Group(())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process stands in a made file system of version 2, with the kernel's rules played.

    A group hands down what was written with a plus before it, and nothing while it holds processes; who is
    written to another group leaves this one.
    """
    scope = tmp_path / "cgroup" / "scope"
    scope.mkdir(parents=True)
    for folder, controllers in ((scope.parent, ""), (scope, "cpu io memory pids\n")):
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text("")
    (scope / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "mountinfo").write_text(f"30 20 0:26 / {scope.parent} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("0::/scope\n")
    monkeypatch.setattr(cgroup, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    write = Path.write_text

    def kernel(path: Path, text: str, *rest: str) -> int:
        if path == scope / "cgroup.subtree_control":
            if (scope / "cgroup.procs").read_text():
                raise OSError(errno.EBUSY, "busy")
            text = text.replace("+", "")
        if path.name == "cgroup.procs":
            write(scope / "cgroup.procs", "")
        return write(path, text, *rest)

    monkeypatch.setattr(Path, "write_text", kernel)
    return scope


@pytest.mark.spec("SB-29")
def test_a_delegated_group_hands_its_controllers_down_once_ours_have_stepped_aside(
    host: Path, tmp_path: Path
) -> None:
    expected = [Hierarchy(host, 2, frozenset({"cpu", "memory", "pids"}))]
    assert places() == expected
    assert (host / "ironworks-factory" / "cgroup.procs").read_text() == str(os.getpid())
    (tmp_path / "own").write_text("0::/scope/ironworks-factory\n")
    assert places() == expected


@pytest.mark.spec("SB-29")
def test_a_group_that_others_live_in_is_left_as_it_is(host: Path) -> None:
    with (host / "cgroup.procs").open("a") as file:
        file.write("1\n")
    assert places() == []
    assert not (host / "ironworks-factory").exists()


@pytest.mark.spec("SB-29")
def test_only_our_own_processes_are_told_to_step_aside() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert ours(os.getpid())
        assert ours(child.pid)
        assert not ours(os.getppid())
        assert not ours(1)
    finally:
        child.kill()
        child.wait(20)


@pytest.mark.spec("SB-29")
def test_no_controller_is_limited_in_two_places(tmp_path: Path) -> None:
    low = Hierarchy(tmp_path / "low", 2, frozenset({"memory", "pids"}))
    top = Hierarchy(tmp_path / "top", 2, frozenset({"memory", "pids", "cpu"}))
    assert first_of_each([low, top]) == [low, Hierarchy(tmp_path / "top", 2, frozenset({"cpu"}))]
