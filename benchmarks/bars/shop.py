"""A repository, a backlog of trivial issues and a command agent that works one second on each."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.testing.till.repository import make_repository

TIMEOUT_S = 600
AGENT = """\
import json, os, subprocess, sys, time
stage = os.environ["IRONWORKS_STAGE"]
title = json.load(open(os.environ["IRONWORKS_ISSUE"]))["title"]
if stage == "triage":
    answer = {"decision": "build", "kind": "feature", "acceptance": ["it is there"]}
elif stage == "work":
    subprocess.run(["sh", "/agent/work.sh", title.lower()], check=True)
    answer = {"status": "done", "summary": title}
else:
    answer = {"verdict": "approve", "checked": ["the diff"]}
open(os.environ["IRONWORKS_HANDOFF"], "w").write(json.dumps(answer))
"""
WORK = """\
set -e
sleep 1
printf 'def %s():\\n    return 1\\n' "$1" > "till/$1.py"
test="tests/test_$1.py"
printf 'import unittest\\nfrom till.%s import %s\\n\\nclass Test(unittest.TestCase):\\n' "$1" "$1" > "$test"
printf '    def test_%s(self):\\n        self.assertEqual(%s(), 1)\\n' "$1" "$1" >> "$test"
git add -A
git -c user.name=Worker -c user.email=worker@localhost commit -qm "Add $1"
"""


class Ran(NamedTuple):
    report: dict[str, Any]
    wall_s: float
    peak_rss_mb: float
    cpu_s: float
    """Both of the process of `ironworks run` itself, without its children."""


class Shop:
    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [f"part{number}" for number in range(1, count + 1)]
        self.repository = make_repository(folder / "till")
        self.backlog = folder / "backlog.md"
        self.backlog.write_text("".join(f"## {name.title()}\n\nPlease.\n\n" for name in self.names), "utf-8")
        agent = folder / "agent"
        agent.mkdir()
        (agent / "agent.py").write_text(AGENT, "utf-8")
        (agent / "work.sh").write_text(WORK, "utf-8")
        self.work = agent / "work.sh"
        self.config = folder / "operator.toml"

    def environment(self) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}

    def place(self) -> list[str]:
        return ["--repository", str(self.repository), "--state", str(self.folder / "state")]

    def run(self, parallel: int) -> Ran:
        """One `ironworks run` over all issues, each of which must land."""
        command = '["python3", "/agent/agent.py"]'
        self.config.write_text(
            f'[agent]\nuse = "command"\ncommand = {command}\ndir = "{self.folder / "agent"}"\n'
            f"[limits]\nparallel = {parallel}\n",
            "utf-8",
        )
        words = ["run", "--json", "--quiet", "--backlog", str(self.backlog), "--config", str(self.config)]
        started_s = time.monotonic()
        out = self.folder / "report.json"
        with out.open("wb") as report, (self.folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "ironworks", *words, *self.place()],
                env=self.environment(), stdin=subprocess.DEVNULL, stdout=report, stderr=errors,
            )  # fmt: skip
            peak_mb, cpu_s = _watched(process)
        wall_s = time.monotonic() - started_s
        if process.returncode:
            raise SystemExit(
                f"the run failed:\n{out.read_text()[-3000:]}{(self.folder / 'errors').read_text()}"
            )
        return Ran(json.loads(out.read_text("utf-8")), wall_s, peak_mb, cpu_s)


def _watched(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Wait for the end; the peak of resident memory in MB (10^6 bytes), and CPU seconds."""
    peak_kib, cpu_s = 0, 0.0
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            peak_kib = max(peak_kib, _peak_kib(process.pid))
            cpu_s = max(cpu_s, _cpu_s(process.pid))
            time.sleep(0.1)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return round(peak_kib * 1024 / 1e6, 1), cpu_s


def _peak_kib(pid: int) -> int:
    lines = _proc(pid, "status").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _cpu_s(pid: int) -> float:
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else 0.0


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace")
    except OSError:
        return ""
