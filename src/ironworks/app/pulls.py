"""Which issues people have merged, read from the repository's own records without pydantic."""

import json
from collections.abc import Iterator
from typing import Any

from ironworks.app.progress import IssueProgress, RunProgress
from ironworks.core.errors import GitError
from ironworks.core.states import State
from ironworks.git.command import Git

PULLS = "refs/ironworks/pulls/"
BATCH = 60
BATCH_BYTES = 16_000_000
"""Records read at once, and how much of them: anybody can push a record of any size."""
BETTER: dict[tuple[str, State], State] = {
    ("landed", "skipped"): "landed",
    ("landed", "queued"): "landed",
    ("open", "skipped"): "proposed",
}
"""Where the record of a pull request knows more than this run's events."""


def pull_states(git: Git) -> dict[str, str]:
    """Issue id → `open`, `landed`, `merged`, `closed` or `evicted`. What cannot be read is left out.

    A branch that the base branch contains is merged, whoever merged it and however.
    """
    listing = git.run("for-each-ref", "--format=%(objectname)", PULLS).split()
    if not listing:
        return {}
    records = [
        record
        for start in range(0, len(listing), BATCH)
        for record in _read(git, listing[start : start + BATCH])
    ]
    states: dict[str, str] = {}
    merged = {base: _merged_heads(git, base) for base in {str(record.get("base")) for record in records}}
    for record in records:
        state = str(record.get("state"))
        if state in {"open", "landed"} and record.get("head") in merged[str(record.get("base"))]:
            state = "merged"
        states.setdefault(str(record.get("id")), state)
        if record.get("kind") == "integration" and state == "merged":
            states |= {str(issue): "merged" for issue in record.get("closes") or ()}
    return states


def overlay(run: RunProgress, git: Git) -> None:
    """Bring the folded states up to date with what people and other factories did since."""
    states = pull_states(git) if run.issues else {}
    for issue in run.issues.values():
        known = states.get(issue.id, "")
        if known == "merged":
            _set(issue, "merged")
        elif (known, issue.state) in BETTER:
            _set(issue, BETTER[known, issue.state])


def _set(issue: IssueProgress, state: State) -> None:
    issue.state, issue.reason, issue.detail = state, "", ""


def _merged_heads(git: Git, base: str) -> set[str]:
    if not base.isprintable():
        return set()
    try:
        merged = git.run(
            "for-each-ref", "--format=%(objectname)", f"--merged=refs/heads/{base}", "refs/heads/"
        )
    except GitError:
        return set()
    return set(merged.decode("ascii").split())


def _read(git: Git, commits: list[bytes]) -> Iterator[dict[str, Any]]:
    wanted = b"".join(commit + b":pull.json\n" for commit in commits)
    return _records(git.head("cat-file", "--batch", stdin=wanted, max_bytes=BATCH_BYTES))


def _records(output: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects in the output of `git cat-file --batch`."""
    while output:
        header, _, rest = output.partition(b"\n")
        words = header.split()
        if len(words) != 3 or not words[2].isdigit():
            output = rest
            continue
        size = int(words[2])
        try:
            record = json.loads(rest[:size])
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        output = rest[size + 1 :]
