"""Two tests of known outcome, run among the others: a suite that misreports them cannot be believed."""

import posixpath
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, Self

from ironworks.core.models import Model, TestOutcome
from ironworks.core.settings import TestSettings

CanaryState = Literal["unavailable", "absent", "sound", "lied"]
"""Not planted; planted but not collected; reported as it must be; reported otherwise."""

_PYTHON_TEST = re.compile(r"^(test_).*\.py$|^.*(_test)\.py$")
_STOPS_EARLY = re.compile(r"(^|\s)(-\w*x|--exitfirst|--maxfail)\b")

_NODE_RUNNER = re.compile(r"\bnode\b[^;&|]*\s--test(\s|$)")
_NODE_TEST = re.compile(r"^(test-)?[\w.-]*?([._-]test)?(\.[cm]?js)$")
_SELECTS = re.compile(r"--test-(only|name-pattern|skip-pattern|shard|force-exit)\b")
"""Options of node's with which a test beside the others need not run."""

_SOURCE = """\
import unittest


class Test{nonce}(unittest.TestCase):
    def test_{passes}(self):
        self.assertEqual("{nonce}", "{nonce}")

    def test_{fails}(self):
        self.assertEqual("{nonce}", "{passes}")
"""

_NODE_SOURCE = """\
const plant = ({{ test }}) => {{
  test("test_{passes}", () => {{}});
  test("test_{fails}", () => {{
    throw new Error("{nonce}");
  }});
}};
// Neither import nor require: the file may be a module of either kind.
if (process.getBuiltinModule) plant(process.getBuiltinModule("node:test"));
else import("node:test").then(plant);
"""


class Canary(Model):
    """A planted file `path` with one test that must pass and one that must fail, under unguessable names."""

    path: str
    nonce: str
    passes: str
    fails: str

    @classmethod
    def plant(cls, suite: TestSettings, files: Iterable[str]) -> Self | None:
        """A canary for a suite whose tests, among the base's `files`, are pytest's or node's; else None.

        A suite told to stop at the first failure would stop at ours, so it gets none; nor does one told which
        tests to run.
        """
        if _STOPS_EARLY.search(suite.command) or _SELECTS.search(suite.command):
            return None
        below = "" if suite.dir in {".", ""} else suite.dir.strip("/") + "/"
        affixes = _node_affixes if _NODE_RUNNER.search(suite.command) else _python_affixes
        tests = [
            (file, found) for file in sorted(files) if file.startswith(below) and (found := affixes(file))
        ]
        if not tests:
            return None
        folder = Counter(posixpath.dirname(file) for file, _ in tests).most_common(1)[0][0]
        alike = Counter(found for file, found in tests if posixpath.dirname(file) == folder)
        nonce, passes, fails = (f"zz{secrets.token_hex(8)}" for _ in range(3))
        before, after = alike.most_common(1)[0][0]
        return cls(
            path=posixpath.join(folder, f"{before}{nonce}{after}"), nonce=nonce, passes=passes, fails=fails
        )

    @property
    def source(self) -> bytes:
        text = _SOURCE if self.path.endswith(".py") else _NODE_SOURCE
        return text.format(nonce=self.nonce, passes=self.passes, fails=self.fails).encode()

    def split(self, tests: Mapping[str, TestOutcome]) -> tuple[CanaryState, dict[str, TestOutcome]]:
        """What became of the canary, and the results without it."""
        marks = (self.nonce, self.passes, self.fails)
        mine = {test: outcome for test, outcome in tests.items() if any(mark in test for mark in marks)}
        rest = {test: outcome for test, outcome in tests.items() if test not in mine}
        if not mine:
            return "absent", rest
        # Some runners put the whole dotted name of a test where its name belongs.
        told = {re.split(r"::|\.", test)[-1]: outcome for test, outcome in mine.items()}
        truth = {f"test_{self.passes}": "passed", f"test_{self.fails}": "failed"}
        return ("sound" if told == truth else "lied"), rest


def _python_affixes(file: str) -> tuple[str, str] | None:
    """What comes before and after the name of a test file of pytest's; None for any other file."""
    name = posixpath.basename(file)
    if not _PYTHON_TEST.match(name):
        return None
    return ("test_", ".py") if name.startswith("test_") else ("", "_test.py")


def _node_affixes(file: str) -> tuple[str, str] | None:
    """The same for `node --test`, which also takes every script in a folder called test."""
    found = _NODE_TEST.match(posixpath.basename(file))
    folders = posixpath.dirname(file).split("/")
    if found is None or "node_modules" in folders:
        return None
    before, marker, kind = (part or "" for part in found.groups())
    return (before, marker + kind) if before or marker or "test" in folders else None
