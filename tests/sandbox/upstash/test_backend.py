import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh, until
from tests.contract.sandbox.conftest import boxes

from ironworks.core.errors import CapabilityError, ConfigError, MissingError, SandboxError
from ironworks.core.ports import Mount, SandboxSpec
from ironworks.sandbox.fork import fork
from ironworks.sandbox.upstash import UpstashBackend
from ironworks.sandbox.upstash.sandbox import UpstashSandbox
from ironworks.testing.upstash import Creation, Fault, UpstashEmulator
from ironworks.testing.upstash.emulator import KEY

__all__ = ["boxes"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CREATE = "^/v2/box$"


@pytest.fixture
async def backend(boxes: UpstashEmulator, tmp_path: Path) -> AsyncIterator[UpstashBackend]:
    made = UpstashBackend(tmp_path / "state", base_url=boxes.base_url, api_key=KEY)
    yield made
    boxes.service.faults.clear()
    await made.close()


def names(boxes: UpstashEmulator) -> list[str]:
    return [str(box.body["name"]) for box in boxes.boxes()]


@pytest.mark.spec("SB-61")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="status", status=429, headers={"Retry-After": "1"}, method="POST", path=CREATE, times=2),
        Fault(kind="status", status=500, method="POST", path=CREATE),
        Fault(kind="status", status=500, method="POST", path=CREATE, after=True),
        Fault(kind="reset", method="POST", path=CREATE, after=True),
        Fault(kind="html", method="POST", path=CREATE, after=True),
        Fault(kind="not_json", method="POST", path=CREATE, after=True),
        Fault(kind="status", status=409, method="POST", path=CREATE, after=True),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{'after' if fault.after else 'before'}",
)
async def test_a_creation_that_fails_leaves_one_box_or_none(
    boxes: UpstashEmulator, backend: UpstashBackend, fault: Fault
) -> None:
    boxes.spoil(fault)
    one = await backend.create(SandboxSpec(name="one"))
    assert await sh(one, "echo up") == "up\n"
    assert len(names(boxes)) == 1
    await backend.destroy("one")
    assert names(boxes) == []


@pytest.mark.spec("SB-61")
async def test_a_box_that_dies_while_it_is_made_is_removed_and_made_again(
    boxes: UpstashEmulator, backend: UpstashBackend
) -> None:
    boxes.next_creation(Creation(ends="error"))
    boxes.next_creation(Creation(ends="idle", polls=2))
    assert await sh(await backend.create(SandboxSpec(name="one")), "echo up") == "up\n"
    assert len(names(boxes)) == 1


@pytest.mark.spec("SB-61")
async def test_what_a_killed_creation_left_is_reaped_and_nobody_elses(
    boxes: UpstashEmulator, backend: UpstashBackend, tmp_path: Path
) -> None:
    other = UpstashBackend(tmp_path / "other", base_url=boxes.base_url, api_key=KEY)
    await other.create(SandboxSpec(name="theirs"))
    await backend.create(SandboxSpec(name="kept"))
    creating = asyncio.create_task(backend.create(SandboxSpec(name="lost")))
    await until(lambda: asyncio.sleep(0, len(names(boxes)) == 3))
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    await backend.collect(frozenset({"kept"}))
    assert {name.rpartition("-")[2] for name in names(boxes)} == {"kept", "theirs"}
    await other.close()


@pytest.mark.spec("SB-62")
async def test_errors_are_ours_and_say_what_to_do(
    boxes: UpstashEmulator, backend: UpstashBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = UpstashBackend(tmp_path / "s", base_url=boxes.base_url, api_key="sk-test-wrong")
    with pytest.raises(ConfigError, match="refuses the key") as refused:
        await stranger.create(SandboxSpec(name="one"))
    assert "UPSTASH_BOX_API_KEY" in refused.value.hint
    monkeypatch.delenv("UPSTASH_BOX_API_KEY", raising=False)
    keyless = UpstashBackend(tmp_path / "k", base_url=boxes.base_url)
    assert keyless.capabilities() == frozenset()
    assert [check.fix for check in keyless.doctor()] == ["export UPSTASH_BOX_API_KEY"]
    with pytest.raises(MissingError, match="nothing-of-the-kind"):
        await backend.create(SandboxSpec(name="one", snapshot="nothing-of-the-kind"))
    for spec in (
        SandboxSpec(name="one", memory_bytes=1 << 30),
        SandboxSpec(name="one", mounts=(Mount(host="/etc/passwd", inside="/x"),)),
        SandboxSpec(name="one", transparent=True),
    ):
        with pytest.raises(CapabilityError):
            await backend.create(spec)
    assert names(boxes) == []
    assert [check.ok for check in await asyncio.to_thread(backend.doctor)] == [True]


@pytest.mark.spec("SB-63")
async def test_a_session_that_is_cut_is_an_error_and_never_a_result(
    boxes: UpstashEmulator, backend: UpstashBackend
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    boxes.spoil(Fault(kind="cut", method="WS"))
    with pytest.raises(SandboxError):
        await one.exec(["sh", "-c", "echo some; sleep 1; exit 0"], timeout_s=30)
    boxes.spoil(Fault(kind="html", times=3))
    assert (
        await one.exec(
            ["sh", "-c", "printf 'event: exit\\ndata: {\"exit_code\":0}\\n\\n'; exit 5"], timeout_s=30
        )
    ).exit_code == 5
    streams = [seen.path for seen in boxes.select() if "exec-stream" in seen.path]
    assert streams == []


@pytest.mark.spec("SB-64")
async def test_what_is_secret_is_attached_outside_and_the_network_is_shut(
    boxes: UpstashEmulator, backend: UpstashBackend, tmp_path: Path
) -> None:
    secret = "sk-test-attached"
    headers = {"api.example": {"x-api-key": secret}}
    one = await backend.create(SandboxSpec(name="one", hosts=("api.example",), headers=headers))
    two = await backend.create(SandboxSpec(name="two"))
    asked = [seen.body for seen in boxes.select("POST", "/v2/box")]
    assert asked[0]["network_policy"]["allowed_domains"] == ["api.example"]
    assert list(asked[0]["attach_headers"]) == ["api.example"]
    assert asked[1]["network_policy"]["mode"] == "deny-all"
    assert [body.get("github_token") for body in asked] == [None, None]
    seen = await sh(one, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -A ~")
    assert secret not in seen and KEY not in seen
    assert secret not in (tmp_path / "state" / "boxes.json").read_text("utf-8")
    assert await sh(two, "echo up") == "up\n"


@pytest.mark.spec("SB-60")
async def test_boxes_are_forked_from_one_that_goes_on(
    boxes: UpstashEmulator, backend: UpstashBackend
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    await sh(one, "echo 1 > f; sleep 600 >/dev/null 2>&1 & echo $! > pid")
    specs = [SandboxSpec(name=f"n{number}") for number in range(3)]
    forks = await fork(backend, one, specs, snapshot="shot")
    await sh(one, "kill -0 $(cat pid); echo 2 > f")
    assert [await sh(each, "cat f") for each in forks] == ["1\n"] * 3
    assert [(box.name, box.snapshot) for box in await backend.sandboxes()] == [
        *((f"n{number}", "shot") for number in range(3)),
        ("one", None),
    ]


@pytest.mark.spec("SB-65")
async def test_a_sandbox_at_rest_costs_nothing_but_its_disk(
    boxes: UpstashEmulator, backend: UpstashBackend
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    await one.put("/work/f", b"kept")
    await one.stop()
    assert [box.status for box in boxes.boxes()] == ["paused"]
    again = await backend.create(SandboxSpec(name="one"))
    assert await sh(again, "cat f") == "kept"
    assert (await again.usage()).cpu_s >= 0
    assert len(names(boxes)) == 1


@pytest.mark.spec("SB-61")
async def test_a_record_that_cannot_be_read_stops_before_anything_is_made(
    boxes: UpstashEmulator, backend: UpstashBackend, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "boxes.json").write_text(json.dumps({"boxes": []}))
    with pytest.raises(Exception, match=r"boxes\.json"):
        await backend.create(SandboxSpec(name="one"))
    assert names(boxes) == []


async def is_there(sandbox: UpstashSandbox, path: str) -> bool:
    return (await sandbox.exec(["test", "-e", path], timeout_s=20)).ok


@pytest.mark.spec("SB-66")
async def test_a_joined_command_survives_cut_connections_and_no_pause(
    boxes: UpstashEmulator, backend: UpstashBackend
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    script = "for n in 1 2 3 4; do echo $n; sleep 0.3; done"
    boxes.spoil(Fault(kind="status", status=500, method="POST", path="/exec$", after=True))
    running = asyncio.ensure_future(one.exec(["sh", "-c", script], key="it", timeout_s=60))
    await asyncio.sleep(1.5)
    boxes.spoil(Fault(kind="cut", method="WS", times=2))
    result = await running
    assert result.stdout == b"1\n2\n3\n4\n"
    lost = asyncio.ensure_future(one.exec(["sh", "-c", "touch up; sleep 600"], key="lost", timeout_s=600))
    await until(lambda: is_there(one, "/work/up"))
    await one.stop()
    with pytest.raises(SandboxError):
        await lost
    again = await backend.create(SandboxSpec(name="one"))
    with pytest.raises(SandboxError, match="did not come to its end"):
        await again.exec(["sleep", "600"], key="lost", timeout_s=600)
    assert (await again.exec(["false"], key="it", timeout_s=60)).stdout == result.stdout


@pytest.mark.spec("SB-67")
async def test_folders_of_the_host_are_copied_in_and_again_when_they_change(
    boxes: UpstashEmulator, backend: UpstashBackend, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "tool").write_text("#!/bin/sh\necho one\n")
    (folder / "below" / "tool").chmod(0o755)
    (folder / "link").symlink_to("below/tool")
    spec = SandboxSpec(name="one", mounts=(Mount(host=str(folder), inside="/opt/a folder"),))
    one = await backend.create(spec)
    assert await sh(one, "'/opt/a folder/link'; id -u | wc -l") == "one\n1\n"
    await backend.snapshot(one, "with")
    two = spec.model_copy(update={"name": "two", "snapshot": "with"})
    before = len(boxes.select("GET", "exec-session"))
    await backend.create(two)
    unchanged = len(boxes.select("GET", "exec-session")) - before
    (folder / "below" / "tool").write_text("#!/bin/sh\necho two, and more\n")
    (folder / "link").unlink()
    three = await backend.create(spec.model_copy(update={"name": "three", "snapshot": "with"}))
    assert await sh(three, "'/opt/a folder/below/tool'; ls '/opt/a folder'") == "two, and more\nbelow\n"
    assert unchanged == 2
