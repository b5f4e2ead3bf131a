import asyncio
import json
import resource
import time

import pytest
from tests.agents.conftest import ISSUE, Place, task_for

from ironworks.agents.command import CommandAgent
from ironworks.agents.exchange import Alive, never
from ironworks.agents.handoff import MAX_HANDOFF_BYTES
from ironworks.agents.transcript import MAX_FILE, FileTranscript
from ironworks.core.errors import ConfigError, SandboxError
from ironworks.core.ports import AgentAnswer

HAND_OFF = "echo '{}' > \"$IRONWORKS_HANDOFF\""


async def run(
    place: Place,
    transcript: FileTranscript,
    script: str,
    *,
    alive: Alive = never,
    **settings: object,
) -> AgentAnswer:
    task = task_for(command=("sh", "-c", script), **settings)  # type: ignore[arg-type]
    return await asyncio.wait_for(CommandAgent(alive).run(place.sandbox, task, transcript), 90)


@pytest.mark.spec("AG-1")
async def test_the_program_finds_its_task_in_files_the_environment_names(
    place: Place, transcript: FileTranscript
) -> None:
    script = """
        python3 - > "$IRONWORKS_HANDOFF" <<'END'
import json, os
told = {name: os.environ["IRONWORKS_" + name] for name in ("STAGE", "ISSUE", "PROMPT", "INPUT")}
files = {name: open(told[name]).read() for name in ("ISSUE", "PROMPT", "INPUT")}
print(json.dumps({"stage": told["STAGE"], "files": files, "cwd": os.getcwd(), "url": os.environ["IW_URL"]}))
END
    """
    task = task_for("schön\ud800 {{ 1 }}", stage="review", command=("sh", "-c", script))
    task = task.model_copy(update={"input": {"acceptance": ["a\ud800b"]}})
    answer = await CommandAgent().run(place.sandbox, task, transcript)
    assert (answer.ending, answer.exit_code) == ("exited", 0), answer.detail
    told = json.loads(answer.handoff or "")
    assert (told["stage"], told["cwd"]) == ("review", "/work")
    assert json.loads(told["files"]["ISSUE"]) == ISSUE.model_dump(mode="json")
    assert told["files"]["PROMPT"] == "schön? {{ 1 }}"
    assert json.loads(told["files"]["INPUT"]) == {"acceptance": ["a\ud800b"]}
    assert told["url"].endswith("/tools")


@pytest.mark.spec("AG-1")
async def test_the_tools_are_on_its_path_beside_what_was_there(
    place: Place, transcript: FileTranscript
) -> None:
    answer = await run(place, transcript, "command -v iw && command -v python3 && iw docs; echo $?")
    assert answer.detail.startswith("iw: documentation is not available yet")
    text = (transcript.folder / "stdout.log").read_text("utf-8")
    assert text.splitlines()[0] == "/run/ironworks/bin/iw"
    assert text.splitlines()[-1] == "2"


@pytest.mark.spec("AG-1")
async def test_a_command_is_run_as_words_not_as_a_line(place: Place, transcript: FileTranscript) -> None:
    task = task_for(command=("printf", "%s|", "$HOME; `id`", "a b", "-n", "{folder}", "é\n"))
    answer = await CommandAgent().run(place.sandbox, task, transcript)
    assert answer.detail == "$HOME; `id`|a b|-n|{folder}|é\n|"


@pytest.mark.spec("AG-2")
async def test_exit_0_with_a_file_is_a_handoff(place: Place, transcript: FileTranscript) -> None:
    answer = await run(place, transcript, HAND_OFF)
    assert (answer.ending, answer.exit_code, answer.handoff) == ("exited", 0, "{}\n")
    assert answer.duration_s > 0


@pytest.mark.spec("AG-2")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("true", 0),
        (f"{HAND_OFF}; exit 3", 3),
        (f"{HAND_OFF}; kill -9 $$", -9),
        ('mkdir "$IRONWORKS_HANDOFF"', 0),
        ('ln -s /etc/passwd "$IRONWORKS_HANDOFF.x"; mkfifo "$IRONWORKS_HANDOFF"', 0),
    ],
)
async def test_all_else_is_none(place: Place, transcript: FileTranscript, script: str, code: int) -> None:
    answer = await run(place, transcript, script)
    assert (answer.ending, answer.exit_code, answer.handoff) == ("exited", code, None)


@pytest.mark.spec("AG-2")
async def test_a_program_that_is_not_there_fails_with_its_name(
    place: Place, transcript: FileTranscript
) -> None:
    task = task_for(command=("no-such-program",))
    answer = await CommandAgent().run(place.sandbox, task, transcript)
    assert answer.exit_code == 127
    assert "no-such-program" in answer.detail


@pytest.mark.spec("AG-2")
async def test_without_a_command_the_operator_is_told(place: Place, transcript: FileTranscript) -> None:
    with pytest.raises(ConfigError, match="no command"):
        await CommandAgent().run(place.sandbox, task_for(), transcript)


@pytest.mark.spec("AG-4")
async def test_a_handoff_that_is_too_large_is_not_read(place: Place, transcript: FileTranscript) -> None:
    answer = await run(place, transcript, f'head -c {MAX_HANDOFF_BYTES + 1} /dev/zero > "$IRONWORKS_HANDOFF"')
    assert answer.handoff is None
    assert "cannot be read" in answer.detail


@pytest.mark.spec("AG-5")
async def test_one_that_goes_silent_is_ended(place: Place, transcript: FileTranscript) -> None:
    answer = await run(place, transcript, "echo last words; sleep 1000", silence_s=2)
    assert (answer.ending, answer.exit_code, answer.handoff) == ("silent", None, None)
    assert answer.detail == "nothing was heard of it for 2 s\nlast words"


@pytest.mark.slow
@pytest.mark.spec("AG-5")
async def test_output_keeps_it_alive(place: Place, transcript: FileTranscript) -> None:
    script = f"for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.4; echo $i >&2; done; {HAND_OFF}"
    answer = await run(place, transcript, script, silence_s=3)
    assert answer.ending == "exited"


@pytest.mark.slow
@pytest.mark.spec("AG-5")
async def test_model_traffic_keeps_it_alive(place: Place, transcript: FileTranscript) -> None:
    answer = await run(place, transcript, f"sleep 3; {HAND_OFF}", silence_s=1, alive=time.monotonic)
    assert answer.handoff == "{}\n"


@pytest.mark.slow
@pytest.mark.spec("AG-5")
async def test_computing_keeps_it_alive(place: Place, transcript: FileTranscript) -> None:
    if "usage" not in place.backend.capabilities():
        pytest.skip("needs a sandbox that can tell the CPU time used")
    compute = "import time\nend = time.monotonic() + 8\nwhile time.monotonic() < end: pass"
    answer = await run(place, transcript, f"python3 -c '{compute}'; {HAND_OFF}", silence_s=4)
    assert answer.handoff == "{}\n"


@pytest.mark.spec("AG-6")
async def test_one_that_takes_too_long_is_ended_though_it_talks(
    place: Place, transcript: FileTranscript
) -> None:
    answer = await run(place, transcript, "while :; do echo busy; sleep 0.1; done", timeout_s=2)
    assert (answer.ending, answer.exit_code) == ("timeout", None)
    assert answer.detail.startswith("not done after 2 s\n")
    assert answer.detail.endswith("busy")


@pytest.mark.spec("AG-7")
@pytest.mark.parametrize("script", [HAND_OFF, "exit 1", "echo started; sleep 1000"])
async def test_nothing_it_started_lives_on(place: Place, transcript: FileTranscript, script: str) -> None:
    daemons = "setsid sleep 987654 & nohup sleep 987654 & (setsid sh -c 'sleep 987654; :' &)\nsleep 0.3\n"
    await run(place, transcript, daemons + script, silence_s=1.5)
    found = await place.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 98765[4]'")
    assert found.strip() == "0"


@pytest.mark.spec("AG-7")
async def test_a_cancelled_exchange_leaves_nothing_running(place: Place, transcript: FileTranscript) -> None:
    running = asyncio.create_task(run(place, transcript, "setsid sleep 987654 & echo up; sleep 987654"))
    log = transcript.folder / "stdout.log"
    for _ in range(400):
        if log.exists():
            break
        await asyncio.sleep(0.05)
    assert log.read_bytes() == b"up\n"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    found = await place.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 98765[4]'")
    assert found.strip() == "0"


@pytest.mark.slow
@pytest.mark.spec("AG-8")
async def test_output_of_any_size_and_bytes_takes_bounded_memory_and_disk(
    place: Place, transcript: FileTranscript
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = f"head -c 150000000 /dev/urandom; head -c 150000000 /dev/zero >&2; {HAND_OFF}"
    answer = await run(place, transcript, script)
    assert answer.handoff == "{}\n"
    assert len(answer.detail) <= 2000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    sizes = [path.stat().st_size for path in transcript.folder.iterdir()]
    assert max(sizes) <= MAX_FILE + 100


async def test_a_sandbox_that_died_is_an_error(place: Place, transcript: FileTranscript) -> None:
    await place.sandbox.stop()
    with pytest.raises(SandboxError):
        await run(place, transcript, "true")
