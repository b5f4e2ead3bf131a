import asyncio
import os
import resource
import time
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import processes, sh, until

from ironworks.core.errors import RefusedError, SandboxError
from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec


@pytest.mark.spec("SB-1")
@pytest.mark.parametrize(
    ("argv", "env", "cwd"),
    [(["a\0b"], {}, "/work"), (["true"], {"A": "b\0C=d"}, "/work"), (["true"], {}, "/work\0/x")],
)
async def test_a_zero_byte_is_refused(
    sandbox: Sandbox, argv: list[str], env: dict[str, str], cwd: str
) -> None:
    with pytest.raises(RefusedError, match="zero byte"):
        await sandbox.exec(argv, env=env, cwd=cwd, timeout_s=20)


@pytest.mark.spec("SB-1")
async def test_a_command_gives_its_exit_code_and_both_streams_byte_for_byte(sandbox: Sandbox) -> None:
    script = "import sys,os; os.write(1,b'\\xff\\x00out'); os.write(2,b'\\xfeerr'); sys.exit(7)"
    result = await sandbox.exec(["python3", "-c", script], timeout_s=20)
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"\xff\x00out", b"\xfeerr")
    assert (result.timed_out, result.truncated) == (False, False)


@pytest.mark.spec("SB-1")
async def test_a_command_afterby_a_signal_has_its_number_negated(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["sh", "-c", "kill -TERM $$"], timeout_s=20)).exit_code == -15


@pytest.mark.spec("SB-1")
@pytest.mark.parametrize(
    ("argv", "cwd", "exit_code"),
    [
        (["no-such-program"], "/work", 127),
        (["/work"], "/work", 126),
        (["true"], "/no/such/folder", 127),
        ([""], "/work", 126),
    ],
)
async def test_what_cannot_be_run_says_so_like_a_shell(
    sandbox: Sandbox, argv: list[str], cwd: str, exit_code: int
) -> None:
    result = await sandbox.exec(argv, cwd=cwd, timeout_s=20)
    assert result.exit_code == exit_code
    assert result.stderr


async def test_no_command_at_all_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(RefusedError):
        await sandbox.exec([], timeout_s=5)


@pytest.mark.spec("SB-1")
async def test_stdin_of_any_size_arrives_and_ends(sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    result = await sandbox.exec(["cat"], stdin=data, timeout_s=20)
    assert result.stdout == data
    assert (await sandbox.exec(["wc", "-c"], timeout_s=20)).stdout.strip() == b"0"


@pytest.mark.spec("SB-1")
async def test_the_environment_is_the_sandboxes_and_the_commands_and_nothing_of_the_host(
    backend: SandboxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "sk-test-host")
    sandbox = await backend.create(SandboxSpec(name="env", env={"A": "1", "B": "1", "HOME": "/work"}))
    result = await sandbox.exec(["env"], env={"B": "2", "C": "a\nb \udcff"}, timeout_s=20)
    assert b"A=1\n" in result.stdout
    assert b"B=2\n" in result.stdout
    assert b"C=a\nb \xff\n" in result.stdout
    assert b"HOME=/work\n" in result.stdout
    assert b"HOST_SECRET" not in result.stdout


@pytest.mark.spec("SB-1")
async def test_arguments_longer_than_a_message_arrive(sandbox: Sandbox) -> None:
    words = ["x" * 100_000, "é\n'\"$(id)", "-n"]
    result = await sandbox.exec(["printf", "%s\\0", *words], timeout_s=20)
    assert result.stdout.decode().split("\0")[:3] == words


@pytest.mark.spec("SB-1")
async def test_a_command_starts_where_it_is_told(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["pwd"], timeout_s=20)).stdout == b"/work\n"
    assert (await sandbox.exec(["pwd"], cwd="/tmp", timeout_s=20)).stdout == b"/tmp\n"


@pytest.mark.spec("SB-2")
async def test_endless_output_is_kept_within_bounds_and_its_end_is_kept(sandbox: Sandbox) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = 0

    def count(_: str, data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    script = "head -c 200000000 /dev/zero; printf end"
    result = await sandbox.exec(["sh", "-c", script], timeout_s=90, max_output=1000, on_output=count)
    assert result.exit_code == 0
    assert result.truncated
    assert result.stdout == b"\0" * 997 + b"end"
    assert seen == 200_000_003
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000


@pytest.mark.spec("SB-2")
async def test_output_within_the_bound_is_whole(sandbox: Sandbox) -> None:
    result = await sandbox.exec(["head", "-c", "1000", "/dev/zero"], timeout_s=20, max_output=1000)
    assert (len(result.stdout), result.truncated) == (1000, False)


@pytest.mark.spec("SB-2")
async def test_output_can_go_to_a_file_of_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "out"
    result = await sandbox.exec(["head", "-c", "5000000", "/dev/zero"], timeout_s=20, stdout_to=target)
    assert (result.exit_code, result.stdout, target.stat().st_size) == (0, b"", 5_000_000)


@pytest.mark.spec("SB-2")
async def test_output_is_shown_while_the_command_runs(sandbox: Sandbox) -> None:
    seen: list[tuple[str, bytes]] = []
    said = asyncio.Event()

    def show(stream: str, data: bytes) -> None:
        seen.append((stream, data))
        said.set()

    script = "echo now; while [ ! -e go ]; do sleep 0.02; done; echo then >&2"
    running = asyncio.create_task(sandbox.exec(["sh", "-c", script], timeout_s=30, on_output=show))
    await asyncio.wait_for(said.wait(), 20)
    assert seen == [("stdout", b"now\n")]
    await sandbox.put("/work/go", b"")
    assert (await running).exit_code == 0
    assert seen[1:] == [("stderr", b"then\n")]


@pytest.mark.spec("SB-2")
async def test_what_the_callback_raises_ends_the_command_and_is_raised(sandbox: Sandbox) -> None:
    def fail(_: str, data: bytes) -> None:
        raise LookupError("no room")

    with pytest.raises(LookupError, match="no room"):
        await sandbox.exec(["sh", "-c", "echo x; sleep 600"], timeout_s=60, on_output=fail)
    await ended(sandbox, "sleep 600")


@pytest.mark.spec("SB-3")
async def test_at_the_time_out_the_whole_session_is_killed(sandbox: Sandbox) -> None:
    # Ignores polite signals, and runs in process groups of their own.
    script = "trap '' TERM HUP INT; set -m; sleep 601 & sleep 602 & echo started; wait"
    result = await sandbox.exec(["bash", "-c", script], timeout_s=3)
    assert (result.exit_code, result.timed_out, result.stdout) == (None, True, b"started\n")
    await ended(sandbox, "sleep 601")
    await ended(sandbox, "sleep 602")


@pytest.mark.spec("SB-3")
async def test_cancelling_kills_the_command(sandbox: Sandbox) -> None:
    started = asyncio.Event()
    running = asyncio.create_task(
        sandbox.exec(["sh", "-c", "echo x; sleep 603"], timeout_s=60, on_output=lambda *_: started.set())
    )
    await asyncio.wait_for(started.wait(), 20)
    await runs(sandbox, "sleep 603")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ended(sandbox, "sleep 603")


@pytest.mark.spec("SB-3")
async def test_a_command_killed_before_it_could_begin_does_not_begin(sandbox: Sandbox) -> None:
    commands = [sandbox.exec(["sleep", "610"], timeout_s=0) for _ in range(20)]
    assert all(result.timed_out for result in await asyncio.gather(*commands))
    assert "sleep 610" not in await processes(sandbox)


@pytest.mark.spec("SB-1")
async def test_the_hosts_umask_does_not_matter(backend: SandboxBackend) -> None:
    before = os.umask(0o077)
    try:
        sandbox = await backend.create(SandboxSpec(name="one"))
    finally:
        os.umask(before)
    assert await sh(sandbox, "umask; touch f; stat -c %a f . ~") == "0022\n644\n755\n755\n"


@pytest.mark.spec("SB-4")
async def test_a_grandchild_that_keeps_the_pipe_does_not_delay_the_return(sandbox: Sandbox) -> None:
    started_s = time.monotonic()
    result = await sandbox.exec(["sh", "-c", "sleep 604 & echo done"], timeout_s=60)
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    assert time.monotonic() - started_s < 30  # and not the 600 s of the grandchild
    await runs(sandbox, "sleep 604")


@pytest.mark.spec("SB-5")
async def test_commands_run_at_the_same_time(sandbox: Sandbox) -> None:
    # Each waits for all others, so that one after the other would never end.
    script = "touch here-$1; while [ $(ls | grep -c here-) -lt 8 ]; do sleep 0.02; done; exit $1"
    commands = [sandbox.exec(["sh", "-c", script, "sh", str(n)], timeout_s=60) for n in range(8)]
    assert [result.exit_code for result in await asyncio.gather(*commands)] == list(range(8))


@pytest.mark.spec("SB-6")
async def test_kill_all_ends_every_process_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    await sh(sandbox, "setsid nohup sleep 605 >/dev/null 2>&1 & (sleep 606 &) ; true")
    running = asyncio.create_task(sandbox.exec(["sleep", "607"], timeout_s=60))

    async def all_run() -> bool:
        return {"sleep 605", "sleep 606", "sleep 607"} <= await processes(sandbox)

    await until(all_run)
    await sandbox.kill_all()
    assert (await running).exit_code == -9
    assert not {name for name in await processes(sandbox) if name.startswith("sleep")}
    assert await sh(sandbox, "echo alive") == "alive\n"


@pytest.mark.spec("SB-6")
async def test_a_paused_sandbox_does_nothing_until_it_is_resumed(sandbox: Sandbox) -> None:
    counter = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.01; done"
    running = asyncio.create_task(sandbox.exec(["setsid", "sh", "-c", counter], timeout_s=60))

    async def count() -> int:
        return int((await sandbox.exec(["cat", "count"], timeout_s=20)).stdout or b"0")

    async def counts_on() -> bool:
        return await count() > stopped_at

    stopped_at = 5
    await until(counts_on)
    await sandbox.pause()
    stopped_at = await count()
    await asyncio.sleep(0.3)
    assert await count() == stopped_at
    await sandbox.resume()
    await until(counts_on)
    await sandbox.kill_all()
    await running


@pytest.mark.spec("SB-6")
async def test_usage_counts_the_processor_time_of_ended_and_of_running_commands(sandbox: Sandbox) -> None:
    before = await sandbox.usage()
    await sandbox.exec(["timeout", "0.3", "sh", "-c", "while :; do :; done"], timeout_s=30)
    after = await sandbox.usage()
    assert after.cpu_s - before.cpu_s > 0.05
    running = asyncio.create_task(sandbox.exec(["sh", "-c", "while :; do :; done"], timeout_s=60))

    async def counted() -> bool:
        return (await sandbox.usage()).cpu_s - after.cpu_s > 0.05

    await until(counted)
    await sandbox.kill_all()
    await running
    await sh(sandbox, "head -c 1000000 /dev/urandom > big")
    assert (await sandbox.usage()).disk_bytes >= 1_000_000


@pytest.mark.spec("SB-8")
async def test_a_stopped_sandbox_says_that_it_has_ended(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.exec(["sleep", "608"], timeout_s=60))
    await sh(sandbox, "true")
    await sandbox.stop()
    await sandbox.stop()
    with pytest.raises(SandboxError):
        await running
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"], timeout_s=5)


@pytest.mark.spec("SB-5")
async def test_zombies_are_reaped(sandbox: Sandbox) -> None:
    await sh(sandbox, "for i in 1 2 3 4 5; do (sh -c 'exit 3' &) ; done; sleep 0.2")
    states = await sh(sandbox, "cat /proc/[0-9]*/stat | sed 's/.*) //; s/ .*//'")
    assert "Z" not in states


async def runs(sandbox: Sandbox, command: str) -> None:
    async def there() -> bool:
        return command in await processes(sandbox)

    await until(there)


async def ended(sandbox: Sandbox, command: str) -> None:
    async def gone() -> bool:
        return command not in await processes(sandbox)

    await until(gone)


@pytest.mark.spec("SB-6")
async def test_what_had_been_stopped_before_a_pause_stays_so(sandbox: Sandbox) -> None:
    await sh(sandbox, "(sleep 100 & sleep 0.3; kill -STOP $!; sleep 101 &) >/dev/null 2>&1")
    await until(lambda: states(sandbox, "TS"))
    await sandbox.pause()
    assert await states(sandbox, "TT")
    await sandbox.resume()
    assert await states(sandbox, "TS")
    await sandbox.kill_all()


async def states(sandbox: Sandbox, wanted: str) -> bool:
    """Whether the two `sleep`s, in the order of their pids, are in these states of the kernel's."""
    script = "for p in $(pgrep -x sleep | sort -n); do cut -d' ' -f3 /proc/$p/stat; done"
    return (await sh(sandbox, script)).split() == list(wanted)
