import asyncio
from pathlib import Path

import pytest
from tests.testing.upstash.client import Client, running

from ironworks.testing.upstash import Creation, Options, ScaledClock, UpstashEmulator
from ironworks.testing.upstash.service import BOXES, SNAPSHOTS

pytestmark = pytest.mark.slow


@pytest.mark.spec("SB-56")
async def test_a_box_pauses_when_idle_and_wakes_for_work(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create(name="mine")
    forever = await client.create(keep_alive=True)
    await client.out(box, "echo kept > file; (setsid sleep 714 &)")
    await emulator.advance(3400)
    assert await client.status(box) == "idle"
    await emulator.advance(200)
    assert await client.status(box) == "paused"
    assert await client.status(forever) == "idle"
    assert await emulator.service.tenant(client.key).boxes[box].processes() == 0
    assert await client.out("mine", "cat file") == "kept\n"
    assert await client.status("mine") == "idle"
    assert (await client.call("POST", f"/v2/box/{forever}/pause")).status == 400


@pytest.mark.spec("SB-56")
async def test_a_box_that_works_is_running_and_does_not_pause(
    client: Client, emulator: UpstashEmulator
) -> None:
    box = await client.create()
    working = asyncio.ensure_future(
        client.out(box, "touch up; while [ -e up ]; do sleep 0.05; done; echo done")
    )
    for _ in range(100):
        if await client.status(box) == "running":
            break
        await asyncio.sleep(0.05)
    await emulator.advance(9999)
    assert await client.status(box) == "running"
    await client.out(box, "while ! rm up; do sleep 0.05; done")
    assert await working == "done\n"
    assert await client.status(box) == "idle"


@pytest.mark.spec("SB-56")
async def test_an_ephemeral_box_ends_by_itself(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create(ephemeral=True, ttl=600)
    await client.out(box, "true")
    await emulator.advance(500)
    assert await client.status(box) == "idle"
    await emulator.advance(200)
    assert (await client.call("GET", f"/v2/box/{box}")).status == 404


@pytest.mark.spec("SB-56")
async def test_a_creation_can_be_slow_fail_or_never_end_and_leaves_its_box(
    client: Client, emulator: UpstashEmulator
) -> None:
    emulator.next_creation(Creation(polls=2))
    emulator.next_creation(Creation(ends="error"))
    emulator.next_creation(Creation(ends="never"))
    emulator.next_creation(Creation(delay_s=60))
    slow, failed, never, late = [await client.create(labels=["run-1"]) for _ in range(4)]
    assert [await client.status(slow) for _ in range(3)] == ["creating", "creating", "idle"]
    assert await client.status(failed) == "error"
    assert (await client.call("POST", f"/v2/box/{never}/exec", command=["true"])).status == 409
    assert await client.status(late) == "creating"
    await emulator.advance(61)
    assert [await client.status(box) for box in (late, never)] == ["idle", "creating"]
    listed = (await client.call("GET", "/v2/box?label=run-1")).data
    assert {box["id"] for box in listed} == {slow, failed, never, late}


@pytest.mark.spec("SB-56")
async def test_a_snapshot_is_a_copy_that_outlives_its_box(client: Client, emulator: UpstashEmulator) -> None:
    emulator.service.options.snapshot_polls = 1
    box = await client.create()
    await client.out(box, "echo one > file; ln -s /nowhere link; sudo mkdir /work; echo two > /work/two")
    taken = (await client.call("POST", f"/v2/box/{box}/snapshots", name="base")).data
    assert taken["status"] == "creating"
    shown: list[str] = []
    for _ in range(500):
        listed = (await client.call("GET", f"/v2/box/{box}/snapshots")).data["snapshots"]
        shown.append(listed[0]["status"])
        if shown[-1] == "ready":
            break
        await asyncio.sleep(0.02)
    assert shown[-1] == "ready"
    assert shown[0] == "creating"
    await client.out(box, "echo changed > file")
    await client.call("DELETE", f"/v2/box/{box}")
    asked = [client.call("POST", "/v2/box/from-snapshot", snapshot_id=taken["id"]) for _ in range(4)]
    copies = [answer.data["id"] for answer in await asyncio.gather(*asked)]
    outs = await asyncio.gather(
        *[client.out(copy, f"echo {copy} >> file; cat file /work/two; readlink link") for copy in copies]
    )
    assert outs == [f"one\n{copy}\ntwo\n/nowhere\n" for copy in copies]
    assert (await client.call("DELETE", "/v2/box/snapshots", ids=[taken["id"]])).data == {"deleted": 1}
    assert (await client.call("POST", "/v2/box/from-snapshot", snapshot_id=taken["id"])).status == 404


@pytest.mark.spec("SB-56")
async def test_tenants_do_not_see_each_other(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create(name="mine")
    other = Client(emulator.base_url, "sk-test-other")
    for name in (box, "mine"):
        assert (await other.call("GET", f"/v2/box/{name}")).status == 404
    assert (await other.call("GET", "/v2/box")).data == []
    await other.create(name="mine")
    assert (await client.call("POST", "/v2/box", name="mine")).status == 409
    stranger = await Client(emulator.base_url, "sk-test-stranger").call("GET", "/v2/box")
    assert (stranger.status, stranger.data) == (401, {"error": "invalid API key"})


@pytest.mark.spec("SB-56")
async def test_limits_and_the_list_that_means_all(client: Client, emulator: UpstashEmulator) -> None:
    emulator.service.options.max_boxes = 2
    box = await client.create(labels=["a"])
    labels = f"/v2/box/{box}/config/labels"
    assert (await client.call("POST", labels, label="a")).status == 409
    assert (await client.call("POST", labels, label="b/c")).data["labels"] == ["a", "b/c"]
    assert (await client.call("DELETE", labels + "/b%2Fc")).data["labels"] == ["a"]
    assert (await client.call("POST", labels, label="x" * 21)).status == 400
    assert (await client.call("POST", "/v2/box", labels=list("abcdef"))).status == 400
    await client.create()
    assert (await client.call("POST", "/v2/box", runtime="node")).status == 403
    assert (await client.call("DELETE", "/v2/box", ids=[])).status == 200
    assert emulator.boxes() == []


@pytest.mark.spec("SB-56")
async def test_what_a_box_used_is_counted_and_priced(client: Client) -> None:
    box = await client.create(size="large", env_vars={"TOKEN": "sk-test-hidden"})
    await client.out(box, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    before = (await client.call("GET", f"/v2/box/{box}")).data
    assert before["total_cpu_ns"] > 10_000_000
    assert before["total_compute_cost_usd"] == pytest.approx(before["total_cpu_ns"] / 3.6e12 * 0.4)
    await client.call("POST", f"/v2/box/{box}/pause")
    after = (await client.call("GET", f"/v2/box/{box}")).data
    assert after["total_cpu_ns"] >= before["total_cpu_ns"]
    runs = (await client.call("GET", f"/v2/box/{box}/runs")).data["runs"]
    assert [(run["type"], run["status"]) for run in runs] == [("shell", "completed")]
    assert "sk-test-hidden" not in str(after)


@pytest.mark.spec("SB-56")
async def test_nothing_of_it_stays_nor_of_one_that_was_killed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / BOXES / "left" / "root").mkdir(parents=True)
    async with UpstashEmulator(state, options=Options(), clock=ScaledClock(1000)) as emulator:
        assert left_in(state) == []
        client = Client(emulator.base_url)
        box = await client.create()
        await client.out(box, "mkdir -p deep/er && chmod 000 deep; (setsid sleep 715 &)")
        await client.call("POST", f"/v2/box/{box}/snapshots", name="base")
        assert running(b"sleep\x00715") and left_in(state)
    assert left_in(state) == []
    assert not running(b"sleep\x00715")


def left_in(state: Path) -> list[Path]:
    return [path for name in (BOXES, SNAPSHOTS) for path in (state / name).glob("*")]
