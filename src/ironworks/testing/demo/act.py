"""What a scripted agent does, step by step; what it edits, it finds in the file as it is shown."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ironworks.testing.demo.merging import merged
from ironworks.testing.script import (
    BashStep,
    CheckStep,
    EditStep,
    HandoffStep,
    ReadStep,
    SayStep,
    Seen,
    Step,
    WriteStep,
)

Act = Step | Callable[[Seen], Step]
"""A step, or what computes it from what the model was shown so far."""
LOOK = BashStep(command="git status --short")
_NUMBERED = re.compile(r"^ *\d+(?:→|\t)", re.MULTILINE)


class Change(NamedTuple):
    """`old` becomes `new` in `path`, wherever it stands."""

    path: str
    old: str
    new: str


def next_step(acts: Sequence[Act], seen: Seen) -> Step:
    """The act that is due; words alone once all is played."""
    if seen.step >= len(acts):
        return SayStep()
    act = acts[seen.step]
    return act(seen) if callable(act) else act


def changes(*wanted: Change) -> list[Act]:
    """Reads each file once, then makes its changes."""
    acts: list[Act] = []
    read = ""
    for change in wanted:
        if change.path != read:
            read = change.path
            acts.append(ReadStep(path=read))
        acts.append(lambda seen, change=change: _edit(seen, change))  # type: ignore[misc]
    return acts


def _edit(seen: Seen, change: Change) -> Step:
    """The edit; a look around where an earlier attempt has made it already."""
    texts = [_plain(result) for result in seen.results]
    made = change.old in change.new and any(change.new in text for text in texts)
    if made or not any(change.old in text for text in texts):
        return LOOK
    return EditStep(path=change.path, old=change.old, new=change.new)


def _plain(result: str) -> str:
    """A file as a tool has shown it, without line numbers."""
    return _NUMBERED.sub("", result)


def insertion(path: str, *, before: str, text: str) -> Change:
    return Change(path, before, text + before)


def addition(path: str, *, after: str, text: str) -> Change:
    return Change(path, after, after + text)


def commit(message: str) -> list[Act]:
    return [CheckStep(), BashStep(command=f"git add -A && git commit -q -m '{message}'")]


def done(summary: str, *files: str, tests_pass: bool = True) -> HandoffStep:
    value: dict[str, Any] = {
        "status": "done",
        "summary": summary,
        "files_changed": list(files),
        "tests_added": [file for file in files if file.startswith("tests/")],
        "tests_pass": tests_pass,
    }
    return HandoffStep(value=value)


def new_test(name: str, *imports: str, body: str) -> WriteStep:
    """A test file named for the issue."""
    head = "\n".join(imports)
    return WriteStep(path=f"tests/test_{name}.py", content=f"{head}\n\n\n{body}")


def resolution(seen: Seen) -> Step:
    """The file merged from the two sides that the prompt shows."""
    path = re.search(r"^The file:\n- (.+)$", seen.prompt, re.MULTILINE)
    base, ours, theirs = (_shown(seen.prompt, side) for side in ("base", "ours", "theirs"))
    value = {
        "path": path.group(1) if path else "",
        "content": merged(base, ours, theirs),
        "explanation": "both changes stay; where they met, token by token",
    }
    return HandoffStep(value=value)


def _shown(prompt: str, label: str) -> str:
    """What stands between the tags of `label`; the last of them, since data comes before it."""
    found = re.findall(rf"<({label}-[0-9a-f]+)>\n(.*?)\n</\1>", prompt, re.DOTALL)
    return found[-1][1] if found else ""
