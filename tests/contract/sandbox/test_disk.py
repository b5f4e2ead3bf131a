import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh, until
from tests.contract.sandbox.conftest import Require

from ironworks.core.errors import BusyError, MissingError, RefusedError, SandboxError
from ironworks.core.ports import Mount, Sandbox, SandboxBackend, SandboxSpec
from ironworks.sandbox.fork import fork

BASE = """
mkdir -p d/e; printf kept > kept; printf changed > changed; printf gone > gone; printf inner > d/e/inner
ln -s kept link; ln kept hard; printf x > run; chmod 750 run; printf h > /home/agent/.config
mkdir refill; printf old > refill/old
"""
CHANGE = """
printf new > changed; rm gone d/e/inner link; rmdir d/e; ln -s changed link; chmod 640 run; printf a > added
rm -r refill; mkdir refill; printf new > refill/new; printf more >> /home/agent/.config
"""
SHOW = """
for f in kept changed gone d/e/inner added refill/old refill/new /home/agent/.config; do
  printf '%s=%s\n' "$f" "$(cat "$f" 2>/dev/null || echo -)"
done
readlink link; stat -c %a run; stat -c %h kept
"""
BASE_SHOWN = (
    "kept=kept\nchanged=changed\ngone=gone\nd/e/inner=inner\nadded=-\nrefill/old=old\nrefill/new=-\n"
    "/home/agent/.config=h\nkept\n750\n2\n"
)
CHANGE_SHOWN = (
    "kept=kept\nchanged=new\ngone=-\nd/e/inner=-\nadded=a\nrefill/old=-\nrefill/new=new\n"
    "/home/agent/.config=hmore\nchanged\n640\n2\n"
)


async def two_snapshots(backend: SandboxBackend) -> None:
    first = await backend.create(SandboxSpec(name="first"))
    await sh(first, BASE)
    assert await backend.snapshot(first, "base") == "base"
    second = await backend.create(SandboxSpec(name="second", snapshot="base"))
    await sh(second, CHANGE)
    await backend.snapshot(second, "changed")


@pytest.mark.spec("SB-9")
async def test_a_snapshot_holds_additions_changes_deletions_modes_and_links(backend: SandboxBackend) -> None:
    await two_snapshots(backend)
    await backend.destroy("first")
    await backend.destroy("second")
    base = await backend.create(SandboxSpec(name="a", snapshot="base"))
    changed = await backend.create(SandboxSpec(name="b", snapshot="changed"))
    assert await sh(base, SHOW) == BASE_SHOWN
    assert await sh(changed, SHOW) == CHANGE_SHOWN


@pytest.mark.spec("SB-9")
async def test_sandboxes_of_one_snapshot_do_not_see_each_other(backend: SandboxBackend) -> None:
    await two_snapshots(backend)
    left, right = [
        await backend.create(SandboxSpec(name=name, snapshot="changed")) for name in ("left", "right")
    ]
    await sh(left, "rm -rf kept d; printf left > changed; chmod 0 run; printf l > only-left")
    assert await sh(right, SHOW) == CHANGE_SHOWN
    assert await sh(right, "ls only-left 2>/dev/null || echo none") == "none\n"


@pytest.mark.spec("SB-9")
async def test_a_snapshotted_sandbox_continues_where_it_was(backend: SandboxBackend) -> None:
    await two_snapshots(backend)
    again = await backend.create(SandboxSpec(name="second", snapshot="base"))
    assert await sh(again, SHOW) == CHANGE_SHOWN
    await sh(again, "printf later > added")
    fresh = await backend.create(SandboxSpec(name="fresh", snapshot="changed"))
    assert await sh(fresh, SHOW) == CHANGE_SHOWN


@pytest.mark.spec("SB-9")
async def test_an_existing_snapshot_wins(backend: SandboxBackend) -> None:
    await two_snapshots(backend)
    late = await backend.create(SandboxSpec(name="late"))
    await sh(late, "printf late > kept")
    assert await backend.snapshot(late, "base") == "base"
    fresh = await backend.create(SandboxSpec(name="fresh", snapshot="base"))
    assert await sh(fresh, SHOW) == BASE_SHOWN
    assert await sh(await backend.create(SandboxSpec(name="late")), "cat kept") == "late"


@pytest.mark.spec("SB-9")
async def test_a_snapshot_of_a_folder_closed_to_its_owner_works(backend: SandboxBackend) -> None:
    first = await backend.create(SandboxSpec(name="first"))
    await sh(first, "mkdir in; printf x > in/f; chmod 000 in /work")
    await backend.snapshot(first, "closed")
    second = await backend.create(SandboxSpec(name="second", snapshot="closed"))
    assert await sh(second, "chmod 700 in; cat in/f") == "x"
    await backend.destroy("first")
    await backend.destroy("second")
    assert not await backend.has_disk("first")
    assert not await backend.has_disk("second")


@pytest.mark.spec("SB-8")
async def test_a_sandbox_that_locked_itself_out_of_its_folders_can_be_continued(
    backend: SandboxBackend,
) -> None:
    first = await backend.create(SandboxSpec(name="one"))
    await sh(first, "printf x > f; chmod 000 /work /home/agent")
    await first.stop()
    assert await sh(await backend.create(SandboxSpec(name="one")), "cat f; touch g ~/g") == "x"


@pytest.mark.spec("SB-9")
async def test_a_chain_of_snapshots_is_a_bounded_one(backend: SandboxBackend) -> None:
    below = None
    for level in range(8):
        sandbox = await backend.create(SandboxSpec(name=f"s{level}", snapshot=below))
        await sh(sandbox, f"printf {level} >> all; printf {level} > f{level}")
        below = await backend.snapshot(sandbox, f"level-{level}")
    last = await backend.create(SandboxSpec(name="last", snapshot=below))
    assert await sh(last, "cat all f0 f1 f2 f3 f4 f5 f6 f7") == "0123456701234567"


@pytest.mark.spec("SB-9")
async def test_an_unknown_snapshot_is_missing_and_leaves_no_disk(backend: SandboxBackend) -> None:
    assert not await backend.has_snapshot("nowhere")
    with pytest.raises(MissingError):
        await backend.create(SandboxSpec(name="one", snapshot="nowhere"))
    assert not await backend.has_disk("one")


@pytest.mark.spec("SB-8")
async def test_a_disk_outlives_its_sandbox_and_the_backend(
    new_backend: Callable[[], SandboxBackend], backend: SandboxBackend
) -> None:
    first = await backend.create(SandboxSpec(name="one"))
    await sh(first, "printf work > f; printf home > /home/agent/f; printf t > /tmp/f")
    await backend.close()
    with pytest.raises(SandboxError):
        await first.exec(["true"], timeout_s=5)
    after = new_backend()
    try:
        assert await after.has_disk("one")
        again = await after.create(SandboxSpec(name="one", snapshot="not-applied-anew"))
        assert await sh(again, "cat f /home/agent/f; ls /tmp") == "workhome"
    finally:
        await after.close()


@pytest.mark.spec("SB-8")
async def test_creating_a_running_sandbox_again_ends_the_first(backend: SandboxBackend) -> None:
    first = await backend.create(SandboxSpec(name="one"))
    await sh(first, "setsid sleep 600 >/dev/null 2>&1 & printf x > f")
    second = await backend.create(SandboxSpec(name="one"))
    assert await sh(second, "cat f; ls -d /proc/[0-9]* | wc -l") in {"x4\n", "x5\n"}
    with pytest.raises(SandboxError):
        await first.exec(["true"], timeout_s=5)


@pytest.mark.spec("SB-10")
async def test_destroying_removes_the_disk_whatever_is_in_it(backend: SandboxBackend) -> None:
    sandbox = await backend.create(SandboxSpec(name="one"))
    deep = "i=0; while [ $i -lt 1500 ]; do mkdir dddddddd && cd dddddddd || exit 1; i=$((i+1)); done"
    await sh(sandbox, f"({deep}) ; mkdir -p locked/in; touch locked/in/f; chmod 0 locked/in locked; mkfifo p")
    await sh(sandbox, "touch -- -rf $(printf 'new\\nline'); ln -s / root")
    await backend.destroy("one")
    assert not await backend.has_disk("one")
    await backend.destroy("one")
    await backend.destroy("never-was")
    assert await sh(await backend.create(SandboxSpec(name="one")), "ls -A") == ""


@pytest.mark.spec("SB-10")
async def test_collecting_removes_all_disks_but_those_named_and_those_in_use(backend: SandboxBackend) -> None:
    for name in ("kept", "left", "left-too", "running"):
        sandbox = await backend.create(SandboxSpec(name=name))
        if name != "running":
            await sandbox.stop()
        if name == "left":
            await backend.snapshot(sandbox, "of-left")
    assert await backend.collect(frozenset({"kept"})) == 2
    assert [name for name in ("kept", "left", "left-too", "running") if await backend.has_disk(name)] == [
        "kept",
        "running",
    ]
    assert await backend.has_snapshot("of-left")


@pytest.mark.spec("SB-11")
@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a b", "a\n", "é", "a" * 101, "a.b", "\0"])
async def test_names_that_could_be_paths_are_refused(backend: SandboxBackend, name: str) -> None:
    with pytest.raises(RefusedError):
        await backend.create(SandboxSpec(name=name))
    with pytest.raises(RefusedError):
        await backend.destroy(name)
    sandbox = await backend.create(SandboxSpec(name="one"))
    with pytest.raises(RefusedError):
        await backend.snapshot(sandbox, name)
    assert await sh(sandbox, "echo runs on") == "runs on\n"


@pytest.mark.spec("SB-11")
@pytest.mark.parametrize("name", ["-", "--help", "a" * 100, "0"])
async def test_every_allowed_name_works(backend: SandboxBackend, name: str) -> None:
    sandbox = await backend.create(SandboxSpec(name=name))
    await sh(sandbox, "printf x > f")
    await backend.snapshot(sandbox, name)
    assert await sh(await backend.create(SandboxSpec(name="z", snapshot=name)), "cat f") == "x"


@pytest.mark.spec("SB-12")
async def test_a_mount_is_shown_and_cannot_be_written(
    backend: SandboxBackend, tmp_path: Path, require: Require
) -> None:
    require("mounts")
    folder = tmp_path / "a folder: with, 'odd\n name"
    folder.mkdir()
    (folder / "f").write_text("host")
    single = tmp_path / "single"
    single.write_text("one")
    mounts = (
        Mount(host=str(folder), inside="/ironworks/base.git"),
        Mount(host=str(single), inside="/opt/x/single"),
    )
    sandbox = await backend.create(SandboxSpec(name="one", mounts=mounts))
    assert await sh(sandbox, "cat /ironworks/base.git/f /opt/x/single") == "hostone"
    script = (
        "echo x > /ironworks/base.git/f || touch /ironworks/base.git/n || rm /opt/x/single || echo x > /opt/n"
    )
    assert (await sandbox.exec(["sh", "-c", script], timeout_s=20)).exit_code != 0
    assert [path.name for path in folder.iterdir()] == ["f"]
    assert (folder / "f").read_text() == "host"


@pytest.mark.spec("SB-12")
@pytest.mark.parametrize(("host", "inside"), [("relative", "/x"), ("/usr", "relative"), ("/usr", "/")])
async def test_a_mount_needs_absolute_paths(
    backend: SandboxBackend, host: str, inside: str, require: Require
) -> None:
    require("mounts")
    with pytest.raises(RefusedError):
        await backend.create(SandboxSpec(name="one", mounts=(Mount(host=host, inside=inside),)))
    assert await sh(await backend.create(SandboxSpec(name="one")), "echo yes") == "yes\n"


@pytest.mark.spec("SB-12")
async def test_a_mount_that_is_not_there_is_an_error_with_its_name(
    backend: SandboxBackend, require: Require
) -> None:
    require("mounts")
    with pytest.raises(SandboxError, match="no-such-folder"):
        await backend.create(SandboxSpec(name="one", mounts=(Mount(host="/no-such-folder", inside="/x"),)))


@pytest.mark.spec("SB-13")
async def test_forty_sandboxes_boot_at_once(backend: SandboxBackend) -> None:
    specs = [SandboxSpec(name=f"n{number}") for number in range(40)]
    sandboxes = await asyncio.gather(*(backend.create(spec) for spec in specs))
    said = await asyncio.gather(*(sh(one, f"echo {one.name} > f; cat f") for one in sandboxes))
    assert said == [f"{spec.name}\n" for spec in specs]
    if "listener" in backend.capabilities():
        assert len({one.listener.fileno() for one in sandboxes if one.listener}) == 40
    await asyncio.gather(*(backend.destroy(spec.name) for spec in specs))
    assert [spec.name for spec in specs if await backend.has_disk(spec.name)] == []


@pytest.mark.spec("SB-13")
async def test_a_cancelled_create_leaves_nothing_running(backend: SandboxBackend) -> None:
    for delay_s in (0, 0.005, 0.02):
        starting = asyncio.create_task(backend.create(SandboxSpec(name="one")))
        await asyncio.sleep(delay_s)
        if delay_s and starting.done():
            continue  # it was faster than that
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    sandbox = await backend.create(SandboxSpec(name="one"))
    assert await sh(sandbox, "echo yes") == "yes\n"


@pytest.mark.slow
@pytest.mark.spec("SB-26")
async def test_seventy_snapshots_can_rest_on_each_other(backend: SandboxBackend) -> None:
    below = None
    for level in range(70):
        one = await backend.create(SandboxSpec(name="one", snapshot=below))
        # Every level adds a file, takes one away, and has a folder anew.
        await sh(
            one,
            f"echo {level} > f{level}; rm -f f{level - 5}; rm -rf d; mkdir d; echo {level} > d/{level}",
        )
        below = await backend.snapshot(one, f"level-{level}")
        await backend.destroy("one")
    top = await backend.create(SandboxSpec(name="top", snapshot=below))
    assert (await sh(top, "ls; cat d/*")).split() == ["d", *(f"f{level}" for level in range(65, 70)), "69"]
    middle = await backend.create(SandboxSpec(name="middle", snapshot="level-33"))
    assert (await sh(middle, "ls; cat d/*")).split() == ["d", *(f"f{level}" for level in range(29, 34)), "33"]
    assert len(await backend.snapshots()) == 70


@pytest.mark.spec("SB-25")
async def test_a_live_snapshot_holds_one_moment_and_the_sandbox_goes_on(
    backend: SandboxBackend, require: Require
) -> None:
    require("live_snapshot")
    base = await backend.create(SandboxSpec(name="base"))
    await sh(base, BASE)
    await backend.snapshot(base, "base")
    one = await backend.create(SandboxSpec(name="one", snapshot="base"))
    await sh(one, CHANGE + "mkdir -p closed; echo deep > closed/f; chmod 000 closed/f closed; mkfifo pipe")
    # Two files that always agree, but for the moment between two writes of one shell.
    beat = "i=0; while :; do i=$((i+1)); for f in a b; do echo $i > t; mv t $f; done; done"
    beating = asyncio.create_task(one.exec(["sh", "-c", beat], timeout_s=60))
    await until(lambda: grown(one, 20))

    assert await backend.snapshot(one, "live", live=True) == "live"

    before = int(await sh(one, "cat b"))
    await until(lambda: grown(one, before + 20))
    assert not beating.done()
    two = await backend.create(SandboxSpec(name="two", snapshot="live"))
    assert await sh(two, SHOW) == await sh(one, SHOW)
    a, b = map(int, (await sh(two, "cat a b")).split())
    assert a - b in {0, 1}
    assert await sh(two, "test -p pipe; chmod 700 closed; chmod 600 closed/f; cat closed/f") == "deep\n"
    await one.kill_all()
    await beating


async def grown(sandbox: Sandbox, least: int) -> bool:
    return int((await sh(sandbox, "cat b 2>/dev/null || echo 0")).strip() or 0) >= least


@pytest.mark.spec("SB-25")
async def test_a_live_snapshot_of_a_paused_sandbox_leaves_it_paused(
    backend: SandboxBackend, require: Require
) -> None:
    require("live_snapshot")
    one = await backend.create(SandboxSpec(name="one"))
    sleeping = asyncio.create_task(one.exec(["sleep", "100"], timeout_s=200))
    await until(lambda: has_state(one, "S"))
    await one.pause()
    await backend.snapshot(one, "live", live=True)
    assert await has_state(one, "T")
    await one.resume()
    assert await has_state(one, "S")
    await one.kill_all()
    await sleeping


async def has_state(sandbox: Sandbox, state: str) -> bool:
    return f"(sleep) {state} " in await sh(sandbox, "cat /proc/[0-9]*/stat")


@pytest.mark.spec("SB-25")
async def test_a_fork_begins_with_the_disk_as_it_is_and_all_or_none_are_made(
    backend: SandboxBackend, require: Require
) -> None:
    require("live_snapshot")
    one = await backend.create(SandboxSpec(name="one"))
    await sh(one, "echo first > f")
    specs = [SandboxSpec(name=f"twin-{number}") for number in range(3)]
    twins = await fork(backend, one, specs, snapshot="parting")
    await sh(one, "echo second > f")
    assert [await sh(twin, "cat f; echo mine > f; cat f") for twin in twins] == ["first\nmine\n"] * 3
    assert await sh(one, "cat f") == "second\n"

    bad = [SandboxSpec(name="good"), SandboxSpec(name="not a name")]
    with pytest.raises(RefusedError):
        await fork(backend, one, bad, snapshot="again")
    assert not await backend.has_disk("good")
    assert await sh(one, "cat f") == "second\n"


@pytest.mark.spec("SB-24")
async def test_what_there_is_can_be_listed_and_what_others_rest_on_is_not_removed(
    backend: SandboxBackend,
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    await one.put("/work/f", b"x" * 100_000)
    await backend.snapshot(one, "first")
    await backend.create(SandboxSpec(name="two", snapshot="first"))

    listed = {each.name: (each.snapshot, each.running) for each in await backend.sandboxes()}
    assert listed == {"one": ("first", False), "two": ("first", True)}
    (first,) = await backend.snapshots()
    assert (first.name, first.below, first.disk_bytes >= 100_000) == ("first", None, True)
    assert abs(first.created_at.timestamp() - time.time()) < 3600

    with pytest.raises(BusyError, match="one, two"):
        await backend.remove_snapshot("first")
    for name in ("one", "two"):
        await backend.destroy(name)
    await backend.remove_snapshot("first")
    await backend.remove_snapshot("first")
    assert (await backend.snapshots(), await backend.sandboxes()) == ([], [])
