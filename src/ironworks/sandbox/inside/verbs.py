"""The program that the host starts in a sandbox: one verb with its arguments as JSON."""

from __future__ import annotations

import json
import sys

from ironworks.sandbox.inside.capturing import capture
from ironworks.sandbox.inside.git import Failed
from ironworks.sandbox.inside.placing import place, settle


def main(text: str) -> None:
    """stdin and stdout are bundles; the last line of stderr is the answer, as JSON."""
    task = json.loads(text)
    verb = task.pop("verb")
    answer: dict[str, object] = {}
    try:
        if verb == "capture":
            answer = capture(**task)
        elif verb == "settle":
            answer = settle(**task)
        else:
            place(**task, bundle=sys.stdin.buffer)
    except (Failed, OSError) as error:
        answer = {"failed": str(error)}
    sys.stderr.write("\n" + json.dumps(answer) + "\n")
