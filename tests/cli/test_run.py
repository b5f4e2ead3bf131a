"""The running verbs with everything real: a `command` agent in sandboxes works on a small repository."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.ground import commit, git, write
from tests.cli.conftest import Cli

from ironworks.app.place import Place, factory_pid
from ironworks.sandbox.local.backend import LocalBackend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0
AGENT = """
import json, os, pathlib, time
stage = os.environ["IRONWORKS_STAGE"]
print("agent at", stage, flush=True)
if stage == "triage":
    answer = {"decision": "build", "kind": "feature", "acceptance": ["it works"]}
elif stage == "work":
    while pathlib.Path("/agent/wait").exists():
        time.sleep(0.05)
    pathlib.Path("b.py").write_text("def g():\\n    return 2\\n")
    pathlib.Path("test_b.py").write_text("def test_g():\\n    import b\\n    assert b.g() == 2\\n")
    answer = {"status": "done", "summary": "done"}
else:
    answer = {"verdict": "approve"}
pathlib.Path(os.environ["IRONWORKS_HANDOFF"]).write_text(json.dumps(answer))
"""
SUITE = """
import glob, importlib, sys
sys.path.insert(0, ".")
cases = ""
for file in sorted(glob.glob("test_*.py")):
    module = importlib.import_module(file[:-3])
    for name in sorted(vars(module)):
        if name.startswith("test_"):
            try:
                getattr(module, name)()
                bad = ""
            except Exception as error:
                bad = f"<failure message='{type(error).__name__}'/>"
            cases += f"<testcase classname='{file[:-3]}' name='{name}'>{bad}</testcase>"
open(sys.argv[1], "w").write(f"<testsuite name='s'>{cases}</testsuite>")
sys.exit("<failure" in cases)
"""
CONFIG = """
[project]
test = "python3 suite.py {junit}"
[agent]
use = "command"
command = ["python3", "/agent/agent.py"]
dir = "agent"
"""


class Runs:
    """Runs the command line in processes of its own, on `place`."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.wait = folder / "agent" / "wait"
        self.config = folder / "operator.toml"
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *args: str, **options: Any) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-m", "ironworks", *args]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        self.started.append(subprocess.Popen(argv, cwd=self.place.root, text=True, **pipes))
        return self.started[-1]

    def run(self, *args: str) -> "subprocess.Popen[str]":
        return self.start("run", "--config", str(self.config), *args)

    def until(self, state: str) -> None:
        """Wait until the issue is in this state."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            done = subprocess.run(
                [sys.executable, "-m", "ironworks", "status", "--json"],
                cwd=self.place.root,
                capture_output=True,
                timeout=60,
            )
            if any(issue["state"] == state for issue in json.loads(done.stdout)["issues"]):
                return
            time.sleep(0.1)
        raise AssertionError(f"no issue was {state} in time")

    def work_began(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not list(self.place.logs.glob("*/*/work-*/stdout.log")):
            assert time.monotonic() < deadline, "no worker started"
            time.sleep(0.05)

    def end(self) -> None:
        pid = factory_pid(self.place.state)
        if pid:
            os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate(timeout=60)


@pytest.fixture
def runs(place: Place, tmp_path: Path) -> Iterator[Runs]:
    lacking = [check.name for check in LocalBackend(tmp_path / "probe").doctor() if not check.ok]
    if lacking:
        pytest.skip(f"needs a local sandbox: {', '.join(lacking)}")
    write(tmp_path, {"agent/agent.py": AGENT, "operator.toml": CONFIG})
    commit(
        place.root,
        {
            "suite.py": SUITE,
            "test_a.py": "def test_a():\n    assert True\n",
            "test_c.py": "def test_c(): ...\n",
        },
    )
    runs = Runs(place, tmp_path)
    yield runs
    runs.end()


def finished(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


@pytest.mark.spec("CLI-17")
def test_a_run_lands_its_issue_and_its_last_command_succeeds(runs: Runs, cli: Cli) -> None:
    code, out, err = finished(runs.run("--backlog", "backlog.md"))
    assert code == 0, err
    assert "working" in err
    assert "landed" in err
    last = out.splitlines()[-1].removeprefix("next: ")
    assert cli(*last.split()[1:]).code == 0
    assert (runs.place.root / "b.py").exists()
    assert git(runs.place.root, "status", "--porcelain") == ""


@pytest.mark.spec("DM-7")
def test_the_hidden_suite_grades_once_and_after_the_report_is_frozen(runs: Runs, tmp_path: Path) -> None:
    write(tmp_path, {"hidden/test_h.py": "def test_h():\n    import b\n    assert b.g() == 3\n"})
    hidden = 'hidden_command = "cd {hidden} && PYTHONPATH=/work python3 /work/suite.py {junit}"\n'
    project, rest = CONFIG.split("[agent]")
    runs.config.write_text(f'{project}hidden_tests = "hidden"\n{hidden}[agent]{rest}')
    code, out, err = finished(runs.run("--json"))
    assert code == 0, err  # What the hidden suite says decides nothing.
    report = json.loads(out)
    folder = runs.place.logs / report["run"]
    grade = json.loads((folder / "grade.json").read_text("utf-8"))
    assert (grade["passed"], grade["total"]) == (0, 1)
    assert grade["commit"] == report["integration"]["commit"]
    assert "hidden suite on" in err and "0 of 1" in err
    assert report.pop("grade") == grade
    assert json.loads((folder / "report.json").read_text("utf-8")) == report
    assert (folder / "report.json").stat().st_mtime_ns < (folder / "grade.json").stat().st_mtime_ns
    logs = "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*.log"))
    assert "test_h" not in logs
    told = json.loads(cli_json(runs, "grade", report["integration"]["commit"]))
    assert [(entry["passed"], entry["total"]) for entry in told] == [(0, 1)]


def cli_json(runs: Runs, *words: str) -> str:
    _, out, _ = finished(runs.start(*words, "--config", str(runs.config), "--json"))
    return out


@pytest.mark.spec("CLI-17")
def test_json_puts_the_report_and_nothing_else_on_standard_output(runs: Runs) -> None:
    code, out, err = finished(runs.run("--json", "--quiet"))
    report = json.loads(out)
    assert (code, err) == (0, "")
    wanted = (
        "issues pull_requests integration cost_usd wall_s critical_path_s agent_s sandbox_cpu_s claims "
        "repository state_dir"
    )
    assert set(wanted.split()) <= set(report)
    assert [issue["state"] for issue in report["issues"]] == ["landed"]
    assert {pull["id"] for pull in report["pull_requests"]} == {report["issues"][0]["id"], "integration"}
    assert report["state_dir"] == str(runs.place.state)
    assert 0 < report["critical_path_s"] <= report["wall_s"]


@pytest.mark.spec("CLI-18")
def test_an_interrupt_stops_cleanly_and_the_next_run_goes_on(runs: Runs) -> None:
    runs.wait.touch()
    first = runs.run("--json")
    runs.work_began()
    first.send_signal(signal.SIGINT)
    code, out, err = finished(first)
    report = json.loads(out)
    assert (code, report["stopped"]) == (1, True)
    assert "stopping" in err
    assert report["next"].startswith("ironworks run")
    runs.wait.unlink()
    code, out, _ = finished(runs.run("--json"))
    again = json.loads(out)
    assert (code, again["run"], again["stopped"]) == (0, report["run"], False)


@pytest.mark.spec("CLI-18")
def test_a_second_interrupt_stops_at_once(runs: Runs) -> None:
    runs.wait.touch()
    process = runs.run("--json")
    runs.work_began()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process)
    assert code in {1, 130}
    assert "Traceback" not in err


@pytest.mark.spec("CLI-19")
def test_a_detached_run_goes_on_and_attach_returns_its_exit_code(runs: Runs, cli: Cli) -> None:
    runs.wait.touch()
    code, out, err = finished(runs.run("--detach"))
    assert code == 0, err
    assert out.splitlines()[-1] == "next: ironworks attach"
    pid = factory_pid(runs.place.state)
    assert pid is not None
    assert os.getsid(pid) == pid
    watcher = runs.start("attach")
    runs.until("working")
    watcher.send_signal(signal.SIGINT)
    assert finished(watcher)[0] == 0
    assert factory_pid(runs.place.state) == pid
    code, _, err = finished(runs.run())
    assert code == 2
    assert str(pid) in err
    runs.wait.unlink()
    code, out, err = finished(runs.start("attach"))
    assert code == 0, err
    assert "landed" in err
    assert cli("status").out.splitlines()[-1] == "next: ironworks pr merge integration"


@pytest.mark.spec("CLI-19")
def test_a_detached_run_that_cannot_begin_says_why(runs: Runs) -> None:
    runs.config.write_text(CONFIG.replace('"command"', '"comand"', 1), "utf-8")
    code, out, err = finished(runs.run("--detach"))
    assert code == 2
    assert "next:" not in out
    assert "comand" in err


@pytest.mark.spec("CLI-9")
def test_stop_from_another_terminal_ends_the_run(runs: Runs, cli: Cli) -> None:
    runs.wait.touch()
    process = runs.run()
    runs.work_began()
    assert cli("stop").out == "stopped\n"
    assert finished(process)[0] == 1
    assert factory_pid(runs.place.state) is None


@pytest.mark.spec("CLI-17")
def test_on_a_terminal_a_table_shows_the_last_line(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    runs.wait.touch()
    ours, theirs = pty.openpty()
    process = runs.start("run", "--config", str(runs.config), "--json", stderr=theirs)
    os.close(theirs)
    shown = read_until(ours, lambda text: "agent at work" in text)
    runs.wait.unlink()
    read_until(ours, lambda text: False)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    os.close(ours)
    assert process.returncode == 0
    assert json.loads(out)["exit_code"] == 0
    for word in ("issue", "stage", "elapsed", "cost", "last line", "working"):
        assert word in shown


def read_until(descriptor: int, enough: Callable[[str], bool]) -> str:
    """What a terminal showed, until it is enough or the other end closes."""
    shown = ""
    while not enough(shown):
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # Linux reports the closed end of a terminal this way
            break
        if not data:
            break
        shown += data.decode("utf-8", "replace")
    return shown


@pytest.mark.spec("CLI-20", "EN-36")
def test_stations_need_no_backlog(runs: Runs, cli: Cli) -> None:
    git(runs.place.root, "rm", "-q", "backlog.md")
    commit(runs.place.root, {})
    for branch, files in {
        "good": {"b.py": "g = 2\n", "test_b.py": "def test_g():\n    import b\n    assert b.g == 2\n"},
        "bad": {"test_a.py": "def test_a():\n    assert False\n"},
    }.items():
        git(runs.place.root, "checkout", "-q", "-b", branch, "main")
        commit(runs.place.root, files)
    git(runs.place.root, "checkout", "-q", "main")
    config = ("--config", str(runs.config), "--json")
    code, out, err = finished(runs.start("verify", "good", *config))
    assert (code, json.loads(out)["verdict"]) == (0, "passed"), err
    code, out, _ = finished(runs.start("verify", "bad", *config))
    assert (code, json.loads(out)["verdict"]) == (1, "failed")
    assert finished(runs.start("verify", "none", *config))[0] == 2
    code, out, err = finished(runs.start("review", "good", *config))
    assert (code, json.loads(out)["verdict"]) == (0, "approve"), err
    code, out, err = finished(runs.start("integrate", "good", "bad", *config))
    assert code == 1, err
    assert (len(json.loads(out)["merged"]), len(json.loads(out)["evicted"])) == (1, 1)
    pulls = {pull["branch"]: pull for pull in json.loads(cli("pr", "list", "--all", "--json").out)}
    assert (pulls["good"]["state"], pulls["bad"]["state"]) == ("landed", "evicted")
    assert pulls["bad"]["reason"].startswith("culprit: ")
    assert pulls["ironworks/integration"]["closes"] == [pulls["good"]["id"]]
    assert cli("pr", "merge", "integration").code == 0
    assert (runs.place.root / "b.py").exists()
