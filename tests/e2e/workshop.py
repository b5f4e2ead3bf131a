"""A repository, a backlog, a planned agent and the real command line, for tests of the whole line."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ironworks.testing.till.repository import make_repository

AGENT = Path(__file__).with_name("planned_agent.py")
DRIVER = Path(__file__).parents[1] / "crash" / "driver.py"
TIMEOUT_S = 240


class Workshop:
    """Everything below `folder`. `plan` is by issue title; see planned_agent.py."""

    def __init__(
        self, folder: Path, plan: Mapping[str, Any], *, more: str = "", repository: Path | None = None
    ) -> None:
        self.folder = folder
        self.environment_more: dict[str, str] = {}
        self.repository = repository or make_repository(folder / "repo with a space")
        self.backlog = folder / "backlog.md"
        self.backlog.write_text(
            "# Backlog\n\n" + "".join(f"## {title}\n\nPlease.\n\n" for title in plan), "utf-8"
        )
        self.plan(plan)
        self.config = folder / "operator.toml"
        self.config.write_text(
            f"""\
[agent]
use = "command"
command = ["python3", "/agent/planned_agent.py"]
dir = "{folder / "agent"}"
timeout_s = 60
{more}
""",
            "utf-8",
        )

    def plan(self, plan: Mapping[str, Any]) -> None:
        agent = self.folder / "agent"
        agent.mkdir(exist_ok=True)
        shutil.copy(AGENT, agent)
        (agent / "plan.json").write_text(json.dumps(plan), "utf-8")

    def environment(self) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        known = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "IRONWORKS_TEST": "1"}
        return {**known, **self.environment_more}

    def arguments(self, *words: str, state: str = "state") -> list[str]:
        return [*words, "--repository", str(self.repository), "--state", str(self.folder / state)]

    def run_words(self, *, state: str = "state") -> list[str]:
        words = ["run", "--backlog", str(self.backlog), "--config", str(self.config), "--json"]
        return self.arguments(*words, state=state)

    def start(self, words: Sequence[str], *, crash_at: str = "", hit: int = 1) -> subprocess.Popen[bytes]:
        armed = [str(DRIVER), crash_at, str(hit)] if crash_at else ["-m", "ironworks"]
        return subprocess.Popen(
            [sys.executable, *armed, *words],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def call(self, words: Sequence[str], *, crash_at: str = "", hit: int = 1) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command line that must end within TIMEOUT_S."""
        process = self.start(words, crash_at=crash_at, hit=hit)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(
                f"{words} did not end:\n{out.decode()[-2000:]}\n{err.decode()[-4000:]}"
            ) from None
        return process.returncode, out.decode(), err.decode()

    def run(self, *, state: str = "state", crash_at: str = "", hit: int = 1) -> tuple[int, dict[str, Any]]:
        """Exit code and report of `ironworks run`; the report is empty when the process was killed."""
        code, out, err = self.call(self.run_words(state=state), crash_at=crash_at, hit=hit)
        if code < 0:
            return code, {}
        assert out.strip().startswith("{"), f"exit {code}\n{out[-2000:]}\n{err[-4000:]}"
        return code, json.loads(out)

    def ironworks(self, *words: str) -> tuple[int, str, str]:
        return self.call(self.arguments(*words))

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.repository,
            env=self.environment(),
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape")

    def suite_passes(self, ref: str, *, known: Sequence[str] = ("test_share_is_rounded_up",)) -> bool:
        """Whether Till's own tests pass at `ref`, run here; `known` fail on base already."""
        checkout = self.folder / "checked"
        shutil.rmtree(checkout, ignore_errors=True)
        self.git("clone", "-q", "--no-checkout", ".", str(checkout))
        commit = self.git("rev-parse", ref).strip()
        for words in (["fetch", "-q", "origin", commit], ["checkout", "-q", commit]):
            subprocess.run(["git", *words], cwd=checkout, env=self.environment(), check=True, timeout=60)
        done = subprocess.run(
            [sys.executable, "check.py", str(self.folder / "report.xml")],
            cwd=checkout, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        bad = [line for line in done.stdout.decode().splitlines() if line.startswith(("failure", "error"))]
        return all(any(name in line for name in known) for line in bad)


@contextlib.contextmanager
def scripted_model(folder: Path) -> Iterator[str]:
    """A scripted model in a process of its own: the settings that name it as a provider."""
    script = folder / "script.json"
    script.write_text("{}", "utf-8")
    (folder / ".env").write_text("TILL_KEY=sk-test-till\n", "utf-8")
    model = subprocess.Popen(
        [sys.executable, "-m", "ironworks.testing.model", str(script), "--until-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert model.stdin and model.stdout
    try:
        url = model.stdout.readline().strip()
        prices = '"*" = { input = 3.0, output = 15.0 }'
        yield f'[providers.scripted]\nbase_url = "{url}"\nkey = "env:TILL_KEY"\nprices = {{ {prices} }}\n'
    finally:
        model.stdin.close()
        model.wait(timeout=30)
        model.stdout.close()


def states(report: Mapping[str, Any]) -> dict[str, str]:
    """Issue title → state."""
    return {issue["title"]: issue["state"] for issue in report["issues"]}


def add(name: str, body: str = "return 1") -> list[str]:
    """Commands of an honest worker: one module, one test file, one commit."""
    test = (
        f"import unittest\\nfrom till.{name} import {name}\\n\\n\\n"
        f"class Test{name.title()}(unittest.TestCase):\\n    def test_it(self):\\n"
        f"        self.assertEqual({name}(), 1)\\n"
    )
    return [
        f"printf 'def {name}():\\n    {body}\\n' > till/{name}.py",
        f"printf '{test}' > tests/test_{name}.py",
        f"git add -A && git commit -qm 'Add {name}'",
    ]
