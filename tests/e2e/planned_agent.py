"""An agent for tests: does what `plan.json` beside it says for the issue's title, stage and round."""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request
from typing import Any

STAGE = os.environ["IRONWORKS_STAGE"]
ISSUE = json.loads(pathlib.Path(os.environ["IRONWORKS_ISSUE"]).read_text())
INPUT = json.loads(pathlib.Path(os.environ["IRONWORKS_INPUT"]).read_text())


def hand_off(value: object) -> None:
    pathlib.Path(os.environ["IRONWORKS_HANDOFF"]).write_text(json.dumps(value))


def triage(plan: dict[str, Any]) -> None:
    hand_off(
        plan.get("triage", {"decision": "build", "kind": plan.get("kind", "feature"), "acceptance": ["done"]})
    )


def call_model() -> None:
    """One request through the gateway, as any agent makes many."""
    prompt = "stage: review\nissue: any\nround: 1\n"
    body = {"model": "till-1", "max_tokens": 100, "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"]},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def work(plan: dict[str, Any]) -> None:
    if plan.get("calls_model"):
        call_model()
    rounds = plan.get("work", [])
    round = min(len(rounds) - 1, 1 if INPUT["findings"] else 0)
    for number, command in enumerate(rounds[round]):
        # Like any sensible worker that finds its own earlier work in the tree, it goes on where it was.
        done = pathlib.Path.home() / f"done-{round}-{number}"
        if not done.exists():
            subprocess.run(["sh", "-ec", command], check=True)
            done.touch()
    time.sleep(plan.get("seconds", 0))
    hand_off(plan.get("report", {"status": "done", "summary": "All tests pass.", "tests_pass": True}))


def review(plan: dict[str, Any]) -> None:
    for command in plan.get("before_review", []):
        subprocess.run(["sh", "-ec", command], check=True)
    hand_off(plan.get("review", {"verdict": "approve", "checked": ["the diff"]}))


def resolve(plan: dict[str, Any]) -> None:
    """Both sides' added lines: ours, then what theirs has besides. `resolve`: only last words."""
    if "resolve" in plan:
        sys.exit("a long way " * 1000 + plan["resolve"])
    base, ours, theirs = (INPUT[side].splitlines(keepends=True) for side in ("base", "ours", "theirs"))
    added = [line for line in theirs if line not in base and line not in ours]
    hand_off({"path": INPUT["path"], "content": "".join(ours + added)})


if __name__ == "__main__":
    plans = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())
    {"triage": triage, "work": work, "review": review, "resolve": resolve}[STAGE](
        plans.get(ISSUE["title"], {})
    )
    sys.exit(0)
