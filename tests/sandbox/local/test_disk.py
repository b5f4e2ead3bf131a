"""Disks on a real file system, in every state that a killed process may leave."""

import os
import subprocess
from pathlib import Path

import pytest

from ironworks.core.errors import MissingError, RefusedError, SandboxError
from ironworks.sandbox.local.disk import DiskStore, end_process, read_meta, start_time, write_meta
from ironworks.sandbox.local.layer import layer_bytes
from ironworks.sandbox.local.tree import remove_tree


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


def filled(store: DiskStore, name: str) -> Path:
    disk = store.open(name, None)
    (disk.upper("work") / "f").write_text(name)
    (disk.upper("home") / "h").write_text(name)
    disk.unlock()
    return disk.path


@pytest.mark.spec("SB-18")
@pytest.mark.parametrize("steps", range(5))
def test_a_freeze_that_was_cut_short_is_finished_when_the_disk_is_opened(
    store: DiskStore, steps: int
) -> None:
    path = filled(store, "one")
    write_meta(path, {"snapshot": None, "freezing": "frozen"})
    target = store.snapshot_path("frozen")
    if steps >= 1:
        target.mkdir()
    if steps >= 2:
        (path / "work" / "upper").rename(target / "work")
    if steps >= 3:
        (path / "home" / "upper").rename(target / "home")
    if steps >= 4:
        write_meta(target, {"snapshot": None})
    disk = store.open("one", "not-applied")
    assert read_meta(path) == {"snapshot": "frozen"}
    assert [(target / file).read_text() for file in ("work/f", "home/h")] == ["one", "one"]
    assert list(disk.upper("work").iterdir()) == []
    assert store.layers(disk, "work") == [store.root / "empty", target / "work"]
    disk.unlock()


@pytest.mark.spec("SB-18")
def test_half_a_snapshot_of_a_disk_that_is_gone_does_not_mix_with_a_new_one(store: DiskStore) -> None:
    filled(store, "one")
    store.snapshot_path("frozen").mkdir()
    (store.snapshot_path("frozen") / "work").mkdir()
    (store.snapshot_path("frozen") / "work" / "stale").touch()
    assert not store.has_snapshot("frozen")
    store.freeze("one", "frozen")
    assert [path.name for path in (store.snapshot_path("frozen") / "work").iterdir()] == ["f"]


@pytest.mark.spec("SB-15")
def test_other_users_of_the_host_cannot_reach_the_disks(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert DiskStore(tmp_path / "open").root.stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("SB-18")
@pytest.mark.parametrize("text", [b"", b"{", b"\xff\0"])
def test_a_disk_or_snapshot_whose_record_is_broken_does_not_count(store: DiskStore, text: bytes) -> None:
    path = filled(store, "one")
    store.freeze("one", "frozen")
    (path / "meta.json").write_bytes(text)
    (store.snapshot_path("frozen") / "meta.json").write_bytes(text)
    assert not store.has_disk("one")
    assert not store.has_snapshot("frozen")
    store.open("one", None).unlock()
    assert store.has_disk("one")


@pytest.mark.spec("SB-18")
def test_half_a_disk_is_made_anew(store: DiskStore) -> None:
    half = store.root / "disks" / "one" / "work" / "upper"
    half.mkdir(parents=True)
    (half / "stale").touch()
    assert not store.has_disk("one")
    disk = store.open("one", None)
    assert list(disk.upper("work").iterdir()) == []
    disk.unlock()


def test_freezing_what_is_not_there_is_missing(store: DiskStore) -> None:
    with pytest.raises(MissingError):
        store.freeze("one", "frozen")


@pytest.mark.spec("SB-26")
def test_a_chain_that_leads_back_to_itself_is_refused(store: DiskStore) -> None:
    filled(store, "one")
    for name in ("low", "high"):
        store.freeze("one", name)
    write_meta(store.snapshot_path("low"), {"snapshot": "high"})
    with pytest.raises(RefusedError, match="itself"):
        store.chain("high")


@pytest.mark.spec("SB-26")
def test_a_state_folder_whose_path_no_mount_can_hold_is_refused(tmp_path: Path) -> None:
    store = DiskStore(tmp_path.joinpath(*["x" * 250] * 8))
    disk = store.open("one", None)
    disk.unlock()
    with pytest.raises(RefusedError, match="too long"):
        store.layers(disk, "work")


@pytest.mark.spec("SB-10")
@pytest.mark.spec("SB-24")
def test_trash_of_a_process_that_died_is_emptied_and_no_other(store: DiskStore) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with subprocess.Popen(["sleep", "60"]) as busy:
        for name in ("one", f"half-a-snapshot-{ended.pid}-7", f"ours-{os.getpid()}-7", f"busy-{busy.pid}-7"):
            (store.root / "trash" / name / "deep" / "er").mkdir(parents=True)
        store.empty_trash()
        assert [path.name for path in (store.root / "trash").iterdir()] == [f"busy-{busy.pid}-7"]
        busy.kill()


@pytest.mark.spec("SB-8")
@pytest.mark.parametrize("record", [b"", b"x y", b"1", b"99999999 5", b"\xff\xff", b"PID 1"])
def test_only_the_process_that_was_recorded_is_ended(record: bytes) -> None:
    # The last is this very process under another start time.
    end_process(record.replace(b"PID", str(os.getpid()).encode()))
    assert start_time(os.getpid()).isdigit()


@pytest.mark.spec("SB-10")
def test_a_tree_of_hostile_names_modes_links_and_depth_is_removed_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1200):  # longer than a path may be
        os.mkdir("x" * 200, dir_fd=here)
        deeper = os.open("x" * 200, os.O_RDONLY, dir_fd=here)
        os.symlink(outside, "link", dir_fd=here)
        os.mkfifo("-rf\n\udcff", dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    (top / "removed-1-0").mkdir(mode=0)
    (top / f"removed-{os.getpid()}-0").mkdir(mode=0)
    assert layer_bytes(top) >= 1200 * 200
    remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").exists()


@pytest.mark.spec("SB-28")
@pytest.mark.parametrize(("constant", "value"), [("FREE_BYTES", 1 << 62), ("FREE_FILES", 1 << 62)])
def test_no_sandbox_is_made_on_a_file_system_that_is_nearly_full(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, constant: str, value: int
) -> None:
    monkeypatch.setattr(f"ironworks.sandbox.local.disk.{constant}", value)
    with pytest.raises(SandboxError, match="files are left") as refused:
        store.need_room()
    assert refused.value.hint
