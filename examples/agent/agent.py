"""An agent as small as it can be: it writes the files that the code blocks of an issue hold.

Ironworks starts it in the repository, inside a sandbox, once for each stage. What it must know is in files
that the environment names; what it answers goes to $IRONWORKS_HANDOFF. `ironworks schema` prints the schemas.
"""

import json
import os
import re
import subprocess
from pathlib import Path

BLOCK = re.compile(r"^```\w* (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A code block whose first line names a file."""


def triage(files):
    if not files:
        return {"decision": "ask", "questions": ["Which file should hold what?"]}
    return {"decision": "build", "kind": "feature", "acceptance": [f"{path} is there" for path in files]}


def work(files):
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    subprocess.run(["git", "add", "-A"], check=True)
    subprocess.run(["git", "commit", "-q", "-m", issue["title"]], check=True)
    return {"status": "done", "summary": issue["title"], "files_changed": list(files)}


def review(files):
    return {"verdict": "approve", "checked": list(files)}


stage = os.environ["IRONWORKS_STAGE"]
issue = json.loads(Path(os.environ["IRONWORKS_ISSUE"]).read_text())
answer = {"triage": triage, "work": work, "review": review}[stage](dict(BLOCK.findall(issue["body"])))
Path(os.environ["IRONWORKS_HANDOFF"]).write_text(json.dumps(answer))
print(stage, "of", issue["title"])
