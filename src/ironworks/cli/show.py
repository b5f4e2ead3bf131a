"""`ironworks show`: all that is known about one issue."""

from pathlib import Path
from typing import Any

import click

from ironworks.app.place import Place
from ironworks.app.progress import IssueProgress, RunProgress
from ironworks.app.pulls import overlay
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import columns, dollars, duration, print_json, say, short
from ironworks.cli.records import issue_of, issue_rows
from ironworks.git.command import Git
from ironworks.store.reader import Reader, Row


@click.command("show")
@click.argument("issue")
@place_options
@json_option
def command(issue: str, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Show one issue: its text, stages, evidence, findings, cost, and the way out of where it rests."""
    place = place_of(repository, state)
    rows = issue_rows(Reader(place.database), place, issue)
    found = issue_of(rows)
    overlay(RunProgress(issues={found.id: found}), Git(place.git_dir))
    data = as_data(found, rows, place)
    if as_json:
        print_json(data)
    else:
        _print(found, data)


def as_data(issue: IssueProgress, rows: list[Row], place: Place) -> dict[str, Any]:
    events = [row.event for row in rows]
    snapshots = [event["snapshot"] for event in events if event["kind"] == "IssueQueued"]
    stages = _in_order(events)
    captured = [event for event in events if event["kind"] == "WorkCaptured"]
    data = issue.as_dict()
    return data | {
        "way_out": suggestion(data["way_out"], place),
        "issue": snapshots[-1] if snapshots else {},
        "stages": stages,
        "work": captured[-1] if captured else {},
        "evidence": {
            name: next((event["handoff"] for event in reversed(stages) if event["stage"] == stage), {})
            for name, stage in (("verification", "verify"), ("review", "review"))
        },
        "logs": sorted(str(path) for path in place.logs.glob(f"*/{issue.id}/*") if path.is_dir()),
    }


def _in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ended stages in the order in which they began: a resolver ends before the integration around it."""
    begun: dict[tuple[str, str, int], int] = {}
    for number, event in enumerate(events):
        if event["kind"] in {"StageStarted", "StageFinished"}:
            begun.setdefault((event["run"], event["stage"], event["attempt"]), number)
    done = [event for event in events if event["kind"] == "StageFinished"]
    return sorted(done, key=lambda event: begun[event["run"], event["stage"], event["attempt"]])


def _print(issue: IssueProgress, data: dict[str, Any]) -> None:
    say(f"{issue.id}: {issue.title}")
    say(f"state: {issue.state}{f' ({issue.reason})' if issue.reason else ''}  {data['meaning']}".rstrip())
    say(f"cost: {dollars(issue.cost_usd)}  rounds: {issue.rounds}  branch: {issue.branch or '-'}")
    say(f"source: {data['issue'].get('source') or '-'}")
    if issue.detail:
        say(f"detail: {issue.detail}")
    if data["issue"].get("body", "").strip():
        say("\n" + "\n".join(f"    {line}" for line in data["issue"]["body"].strip().splitlines()))
    if data["stages"]:
        header = ("STAGE", "TRY", "OUTCOME", "TOOK", "COST")
        say("\n" + columns([header, *(_stage(stage) for stage in data["stages"])]))
    for title, lines in (
        ("questions", issue.questions if issue.state == "asked" else ()),
        ("verification", _verification(data["evidence"]["verification"])),
        ("review", _review(data["evidence"]["review"])),
        ("logs", data["logs"]),
    ):
        if lines:
            say(f"\n{title}:\n" + "\n".join(f"    {line}" for line in lines))
    if data["way_out"]:
        say(f"\nnext: {data['way_out']}")


def _stage(stage: dict[str, Any]) -> tuple[str, ...]:
    took, cost = duration(stage["duration_s"]), dollars(stage["cost_usd"])
    return stage["stage"], str(stage["attempt"]), stage["outcome"], took, cost


def _verification(evidence: dict[str, Any]) -> list[str]:
    if not evidence:
        return []
    tests = list(evidence.get("tests", {}).values())
    counts = ", ".join(f"{tests.count(outcome)} {outcome}" for outcome in sorted(set(tests)))
    proof = evidence.get("fail_to_pass", {})
    proven = ", ".join(proof.get("proven", ())) or proof.get("waived", "") or "nothing"
    lines = [
        f"{evidence.get('verdict')}: {counts or 'no tests'}",
        f"fails without the change: {short(proven, 200)}",
    ]
    lines += [f"regression: {test}" for test in evidence.get("regressions", ())]
    return lines + [_finding(finding) for finding in evidence.get("findings", ())]


def _finding(finding: dict[str, Any]) -> str:
    where = finding.get("path") or finding.get("test")
    text = f"{finding.get('code')}: {short(str(finding.get('message')), 300)}"
    return f"{'!' if finding.get('fatal') else '-'} {text}{f' ({where})' if where else ''}"


def _review(evidence: dict[str, Any]) -> list[str]:
    # The engine may wrap the reviewer's report together with what became of its findings.
    report = evidence.get("review", evidence)
    if not report.get("verdict"):
        return []
    return [
        str(report["verdict"]),
        *(
            f"{entry.get('severity')}: {short(str(entry.get('claim')), 300)}"
            for entry in report.get("findings", ())
        ),
    ]
