"""What a real model did differently from the script, issue by issue."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from ironworks.cli.output import dollars
from ironworks.core.report import RunReport

REFERENCE = resources.files("ironworks.testing.demo") / "scripted.json"
"""What the script comes to with any seed: states, rounds and catches by issue, and the cost by list price."""
PLANTED = frozenset(
    {"claim-contradicted", "ghost-commit", "out-of-scope", "reproduced", "egress-denied", "asked"}
)
"""Catches that are of the worker's own making; conflicts and known failures depend on the others."""


def summary(report: RunReport) -> dict[str, Any]:
    """What of a report does not depend on the order of events."""
    issues: dict[str, Any] = {
        _slug(issue.id): {"state": issue.state, "rounds": issue.rounds, "caught": []}
        for issue in report.issues
    }
    for catch in report.caught:
        found = issues.get(_slug(catch.issue), {}).get("caught", [])
        if catch.code in PLANTED and catch.code not in found:
            found.append(catch.code)
    for entry in issues.values():
        entry["caught"].sort()
    return {"issues": dict(sorted(issues.items())), "cost_usd": round(report.cost_usd, 1)}


def differences(report: RunReport) -> list[str]:
    """One line for each way in which it went otherwise than scripted."""
    scripted, real = json.loads(REFERENCE.read_text("utf-8")), summary(report)
    lines = [
        f"{slug}: {line}"
        for slug, script in scripted["issues"].items()
        for line in _differing(script, real["issues"].get(slug))
    ]
    return [
        *lines,
        f"cost: {dollars(real['cost_usd'])}, the script {dollars(scripted['cost_usd'])} by list price",
    ]


def _differing(script: dict[str, Any], real: dict[str, Any] | None) -> Iterator[str]:
    if real is None:
        yield "not worked on"
        return
    if real["state"] != script["state"]:
        yield f"{real['state']}, {script['state']} in the script"
    if real["rounds"] != script["rounds"]:
        yield f"{real['rounds']} rounds, {script['rounds']} in the script"
    for code in sorted({*script["caught"]} - {*real["caught"]}):
        yield f"did not walk into the trap of the script: {code}"
    for code in sorted({*real["caught"]} - {*script["caught"]}):
        yield f"walked into one that the script avoids: {code}"


def _slug(issue: str) -> str:
    """The id without the mark that keeps equal titles apart."""
    return issue.rpartition("-")[0]
