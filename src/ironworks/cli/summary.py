"""The report of a run as a person reads it: on a terminal, and as Markdown."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ironworks.cli.output import clean, columns, dollars, duration, gist, short
from ironworks.core.models import PullRequest
from ironworks.core.report import IssueReport, RunReport

RESTS_BADLY = frozenset({"parked", "evicted", "failed"})
MANY = 3
MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
Rows = Sequence[tuple[str, ...]]


class Section(NamedTuple):
    """One part of the report, before it is text or Markdown."""

    title: str
    header: tuple[str, ...]
    rows: Rows


def as_text(report: RunReport) -> str:
    """For a terminal. Nothing in it is obeyed by one."""
    parts = [clean(headline(report))]
    for section in sections(report):
        lines = columns([section.header, *section.rows] if any(section.header) else section.rows)
        parts.append(f"{section.title}\n" + "\n".join(f"  {line}" for line in lines.splitlines()))
    return "\n\n".join([*parts, f"next: {clean(report.next)}"])


def as_markdown(report: RunReport) -> str:
    """The same as Markdown. What strangers wrote is text in it, never markup."""
    lines = [f"# {_plain(headline(report))}", ""]
    for section in sections(report):
        header = section.header if any(section.header) else tuple(" " for _ in section.rows[0])
        lines += [f"## {section.title}", "", _row(header), _row(["---"] * len(header))]
        lines += [_row([_plain(cell) for cell in row]) for row in section.rows] + [""]
    return "\n".join([*lines, "## Next", "", f"    {clean(report.next)}", ""])


def headline(report: RunReport) -> str:
    """`run-1a2b: 9 landed, 1 asked; 1m02s, $3.08`."""
    ending = " (stopped)" if report.stopped else ""
    return (
        f"{report.run}: {outcomes(report) or 'no issues'}{ending}; "
        f"{duration(report.wall_s)}, {dollars(report.cost_usd)}"
    )


def outcomes(report: RunReport) -> str:
    states = sorted(_state(issue) for issue in report.issues)
    counted = sorted(((len(list(group)), state) for state, group in groupby(states)), reverse=True)
    return ", ".join(f"{count} {state}" for count, state in counted)


def sections(report: RunReport) -> Iterator[Section]:
    """The parts that have something to say, in the order in which they are read."""
    every = (
        Section("Issues", ("ISSUE", "STATE", "ROUNDS", "COST", "TITLE"), _issues(report.issues)),
        Section("Waiting for you", ("ISSUE", "WHY"), _waiting(report.issues)),
        Section("Caught on the way", ("BY", "ISSUE", "WHAT"), _caught(report)),
        Section("Integration", ("", ""), _integration(report)),
        Section("Cost by stage", ("", ""), _costs(report)),
        Section("Time", ("", "", ""), _times(report)),
    )
    return (section for section in every if section.rows)


def _issues(issues: Iterable[IssueReport]) -> Rows:
    return [
        (issue.id, _state(issue), str(issue.rounds), dollars(issue.cost_usd), short(issue.title, 50))
        for issue in issues
    ]


def _state(issue: IssueReport) -> str:
    worth_naming = issue.state in RESTS_BADLY
    return f"{issue.state} ({short(issue.reason, 30)})" if issue.reason and worth_naming else issue.state


def _waiting(issues: Iterable[IssueReport]) -> Rows:
    return [
        (issue.id, gist(issue.detail, 200) or issue.reason)
        for issue in issues
        if issue.state in RESTS_BADLY or issue.state == "asked"
    ]


def _caught(report: RunReport) -> Rows:
    """A row for each kind of catch and issue; one for all issues where there are many alike."""
    rows: list[tuple[str, ...]] = []
    ordered = sorted(report.caught, key=lambda catch: (catch.by, catch.code))
    for (by, _), alike in groupby(ordered, key=lambda catch: (catch.by, catch.code)):
        found: dict[str, list[str]] = {}
        for catch in alike:
            found.setdefault(catch.issue, []).append(short(catch.what, 160))
        told = [(by, issue, _first(words)) for issue, words in found.items()]
        rows += told if len(told) <= MANY else [(by, f"{len(told)} issues", f"such as {told[0][2]}")]
    return rows


def _first(words: list[str]) -> str:
    return words[0] + (f" (and {len(words) - 1} more)" if len(words) > 1 else "")


def _integration(report: RunReport) -> Rows:
    done = report.integration
    stuck = [
        ("cannot be merged", gist(pull.reason, 200)) for pull in report.pull_requests if _is_put_off(pull)
    ]
    if not done.branch:
        return stuck
    files = done.conflicts
    return [
        ("branch", f"{done.branch} at {done.commit[:12]}"),
        *stuck,
        ("landed", f"{len(done.merged)}, {len(done.evicted)} kept out, {done.suite_runs} suite runs"),
        (
            "files both sides changed",
            f"{files.git} merged by git, {files.structural} by declaration, {files.agent} by an agent",
        ),
    ]


def _is_put_off(pull: PullRequest) -> bool:
    return pull.kind == "integration" and pull.state == "open" and bool(pull.reason)


def _costs(report: RunReport) -> Rows:
    rows = [(stage, dollars(cost_usd)) for stage, cost_usd in report.costs.items()]
    return [*rows, ("together", dollars(report.cost_usd))] if rows else []


def _times(report: RunReport) -> Rows:
    path_s, wall_s = report.critical_path_s, report.wall_s
    if not (report.serial_s and wall_s):
        return []  # Nothing was worked on.
    return [
        ("wall", f"{wall_s:.1f} s", ""),
        ("critical path", f"{path_s:.1f} s", f"the wall is {wall_s / path_s:.2f} x of it" if path_s else ""),
        (
            "one after the other",
            f"{report.serial_s:.1f} s",
            # Below one, booting sandboxes took most of the time: nothing that a ratio would explain.
            f"{report.serial_s / wall_s:.1f} x of the wall" if report.serial_s > wall_s else "",
        ),
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return MARKUP.sub(r"\\\1", clean(" ".join(text.split())))


def freeze(report: RunReport, folder: Path) -> None:
    """Write report.json and report.md into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "report.json", json.dumps(report.model_dump(mode="json"), indent=2))
    write_whole(folder / "report.md", as_markdown(report))


def frozen(report: RunReport, folder: Path) -> RunReport:
    """The report that `folder` holds, if it tells the same as `report`; else `report` itself."""
    try:
        kept = RunReport.model_validate_json((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return report
    return kept if kept.issues == report.issues and not kept.stopped else report


def write_whole(path: Path, text: str) -> None:
    """Write the file, all of it or none."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    Path(draft).replace(path)
