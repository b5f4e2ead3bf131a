import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.app.ground import commit, git, write
from tests.cli.conftest import Cli, ended, parked, started

from ironworks.app.place import Place
from ironworks.app.trust import TrustStore
from ironworks.core.clock import SystemClock
from ironworks.core.models import PullRequest
from ironworks.forge.local.forge import LocalForge
from ironworks.git.depot import Depot
from ironworks.store.store import Store

History = Callable[..., None]

FACTORY = """
import asyncio, pathlib, signal, sys
from ironworks.app.control import control_server
from ironworks.app.place import hold_lock
from ironworks.store.store import Store

state = pathlib.Path(sys.argv[1])
ended = asyncio.Event()

async def on_message(verb, message):
    if verb == "stop":
        print("now" if message["now"] else "clean", flush=True)
        ended.set()
    for waiting in store.inbox():
        store.handled(waiting.id, f"{waiting.verb} {waiting.issue} {waiting.payload}")

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    if "--mute" in sys.argv:
        print("ready", flush=True)
        return await asyncio.wait_for(ended.wait(), 60)
    async with control_server(state / "control.sock", on_message):
        print("ready", flush=True)
        await asyncio.wait_for(ended.wait(), 60)

store = Store(state / "ironworks.db")
with hold_lock(state):
    asyncio.run(main())
"""


class Factory:
    """Something that holds the lock and listens, as a factory does."""

    def __init__(self, place: Place, *args: str) -> None:
        argv = [sys.executable, "-c", FACTORY, str(place.state), *args]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def rest(self) -> str:
        out, _ = self.process.communicate(timeout=60)
        return str(out)


@pytest.fixture
def factory(place: Place, history: History) -> "Iterator[Callable[..., Factory]]":
    history(started(pid=1, backlog="/b/my backlog.md"), *parked("one"))
    made: list[Factory] = []

    def make(*args: str) -> Factory:
        made.append(Factory(place, *args))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.communicate(timeout=60)


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("args", "result"),
    [
        (["retry", "one"], "retry one {}"),
        (["retry", "one", "--budget-usd", "6"], "retry one {'budget_usd': 6.0}"),
        (["answer", "one", "the", "blue", "one"], "answer one {'text': 'the blue one'}"),
        (["answer", "--", "one", "-x is the flag"], "answer one {'text': '-x is the flag'}"),
        (["pause"], "pause  {}"),
        (["pause", "one"], "pause one {}"),
        (["resume", "one"], "resume one {}"),
    ],
)
def test_a_running_factory_obeys_at_once_and_its_answer_is_shown(
    cli: Cli, factory: Callable[..., Factory], args: list[str], result: str
) -> None:
    running = factory()
    assert cli(*args).out == result + "\n"
    assert json.loads(cli(args[0], "--json", *args[1:]).out)["result"] == result
    assert cli("stop").code == 0
    running.rest()


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(("args", "heard"), [([], "clean\n"), (["--now"], "now\n")])
def test_stop_waits_until_the_factory_has_ended(
    cli: Cli, factory: Callable[..., Factory], args: list[str], heard: str
) -> None:
    running = factory()
    said = cli("stop", *args)
    assert (said.code, said.out) == (0, "stopped\n")
    assert running.rest() == heard


def test_stop_reaches_a_factory_that_does_not_listen_yet(cli: Cli, factory: Callable[..., Factory]) -> None:
    running = factory("--mute")
    assert cli("stop").code == 0
    running.rest()


def test_stop_says_when_patience_ends(cli: Cli, factory: Callable[..., Factory]) -> None:
    running = factory("--mute")
    os.kill(running.process.pid, signal.SIGSTOP)
    try:
        said = cli("stop", "--wait-s", "0.2")
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    assert said.code == 1
    assert said.out.endswith("next: ironworks stop --now\n")
    running.rest()


def test_stop_without_a_factory_is_no_error(cli: Cli, place: Place) -> None:
    said = cli("stop", "--json")
    assert (said.code, json.loads(said.out)) == (0, {"running": False, "stopped": True})


@pytest.mark.spec("CLI-9")
def test_a_command_without_a_factory_waits_for_the_next_run(cli: Cli, place: Place, history: History) -> None:
    history(started(backlog="/b/my backlog.md"), *parked("one"), ended())
    said = cli("retry", "one", "--budget-usd", "6")
    assert said.out == "retry one: noted\nnext: ironworks run --backlog '/b/my backlog.md'\n"
    store = Store(place.database)
    (note,) = store.inbox()
    assert (note.verb, note.issue, note.payload) == ("retry", "one", {"budget_usd": 6})
    store.close()


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_what_only_a_running_factory_can_do_is_refused_without_one(cli: Cli, place: Place, verb: str) -> None:
    assert cli(verb).code == 2


@pytest.mark.parametrize("text", ["", "  ", "x" * 20_001])
def test_an_answer_of_no_use_is_refused(cli: Cli, history: History, text: str) -> None:
    history(started(), *parked("one"), ended())
    assert cli("answer", "one", text).code == 2


# -- init, trust, schema ---------------------------------------------------------------------------------


@pytest.mark.spec("CF-11")
def test_init_writes_trusts_and_explains(cli: Cli, place: Place) -> None:
    write(place.root, {"pyproject.toml": '[project]\nname = "x"\n'})
    said = cli("init")
    assert said.code == 0
    assert "pyproject.toml says Python" in said.out
    assert '"$HOME/venv/bin/python" -m pytest' in json.loads(cli("init", "--force", "--json").out)["test"]
    assert said.out.splitlines()[-1] == "next: ironworks doctor"
    assert TrustStore().trusts(place.root, place.config.read_bytes())
    found = json.loads(cli("init", "--force", "--json").out)
    assert (found["language"], found["manager"], found["base"]) == ("python", "pip", "main")
    assert found["test"]


@pytest.mark.spec("CF-11")
def test_init_never_overwrites_unless_told(cli: Cli, place: Place, tmp_path: Path) -> None:
    write(place.root, {"ironworks.toml": "mine"})
    said = cli("init")
    assert said.code == 2
    assert "--force" in said.err
    assert place.config.read_text() == "mine"
    place.config.unlink()
    write(tmp_path, {"victim": "mine"})
    place.config.symlink_to(tmp_path / "victim")
    assert cli("init").code == 2
    assert cli("init", "--force").code == 0
    assert (tmp_path / "victim").read_text() == "mine"
    assert not place.config.is_symlink()


def test_trust_shows_the_file_and_what_it_grants(cli: Cli, place: Place) -> None:
    write(place.root, {"ironworks.toml": '[network]\nallow = ["x.example"] # \u202e\n'})
    said = cli("trust")
    assert said.code == 0
    assert 'allow = ["x.example"]' in said.out
    assert "trusted" in said.out
    assert "network" in said.out.splitlines()[-1]
    assert "\u202e" not in said.out
    assert json.loads(cli("trust", "--json").out)["grants"] == ["network"]


def test_trust_of_a_file_with_a_mistake_is_refused(cli: Cli, place: Place) -> None:
    write(place.root, {"ironworks.toml": "[netwrk]\n"})
    assert "did you mean network?" in cli("trust").err
    place.config.unlink()
    said = cli("trust")
    assert said.code == 2
    assert "ironworks init" in said.err


def test_schemas_are_published(cli: Cli) -> None:
    every = json.loads(cli("schema").out)
    assert set(every) == {
        "TriageReport",
        "WorkReport",
        "Verification",
        "ReviewReport",
        "Resolution",
        "Integration",
    }
    one = json.loads(cli("schema", "Resolution", "--json").out)
    assert one == every["Resolution"]
    assert json.loads(cli("schema", "work").out) == every["WorkReport"]
    assert one["additionalProperties"] is False


# -- pull requests ---------------------------------------------------------------------------------------


@pytest.fixture
def head(place: Place) -> str:
    """The head of an integration branch that closes issue `one`."""
    git(place.root, "checkout", "-q", "-b", "ironworks/integration")
    head = commit(place.root, {"new\x1b.txt": "new\x1b[2J\n"})
    git(place.root, "checkout", "-q", "main")
    forge = LocalForge(Depot(place.depot, place.git_dir), None, SystemClock())
    common = {"base": "main", "head": head, "branch": "ironworks/integration", "body": "evidence\x1b[2J"}
    integration = {"id": "integration", "kind": "integration", "closes": ("one",), "title": "All"}
    for fields in ({"id": "one", "state": "landed", "title": "One"}, integration):
        assert forge.put_pull(PullRequest.model_validate(common | fields), expected=None)
    return head


@pytest.mark.spec("CLI-13")
def test_pull_requests_are_listed_shown_compared_and_merged(cli: Cli, place: Place, head: str) -> None:
    assert [line.split()[0] for line in cli("pr", "list").out.splitlines()] == ["ID", "integration", "one"]
    assert [pull["state"] for pull in json.loads(cli("pr", "list", "--json").out)] == ["open", "landed"]
    assert "closes: one" in cli("pr", "show", "integration").out
    assert json.loads(cli("pr", "show", "one", "--json").out)["head"] == head
    assert "+new\\x1b[2J" in cli("pr", "diff", "integration").out
    assert json.loads(cli("pr", "diff", "integration", "--json").out)["to"] == head
    said = cli("pr", "merge", "integration")
    assert said.code == 0
    assert git(place.root, "rev-parse", "main") == head
    assert cli("pr", "list").out.startswith("no open pull requests")
    assert len(json.loads(cli("pr", "list", "--all", "--json").out)) == 2


@pytest.mark.spec("CLI-14")
def test_a_refused_merge_says_why_and_ends_with_1(cli: Cli, place: Place, head: str) -> None:
    commit(place.root, {"other": "x"})
    said = cli("pr", "merge", "integration", "--json")
    assert said.code == 1
    found = json.loads(said.out)
    assert (found["merged"], found["error"]["code"]) == (False, "conflict")
    assert "must be rebuilt" in said.err


def test_a_merged_issue_is_shown_as_merged(cli: Cli, place: Place, head: str, history: History) -> None:
    history(started(), *parked("one"), ended())
    cli("pr", "merge")
    assert json.loads(cli("status", "--json").out)["issues"][0]["state"] == "merged"
    assert json.loads(cli("show", "one", "--json").out)["state"] == "merged"


def test_a_pull_request_is_closed_with_its_reason(cli: Cli, head: str) -> None:
    landed = cli("pr", "close", "one")
    assert landed.code == 1 and "one has landed" in landed.err
    said = cli("pr", "close", "integration", "--reason", "no", "--json")
    assert json.loads(said.out)["state"] == "closed"
    assert "reason: no" in cli("pr", "show", "integration").out
    assert cli("pr", "close", "nope").code == 2
    assert cli("pr", "show", "nope").code == 2
