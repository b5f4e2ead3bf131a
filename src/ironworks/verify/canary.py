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

_SOURCE = """\
import unittest


class Test{nonce}(unittest.TestCase):
    def test_{passes}(self):
        self.assertEqual("{nonce}", "{nonce}")

    def test_{fails}(self):
        self.assertEqual("{nonce}", "{passes}")
"""


class Canary(Model):
    """A planted file `path` with one test that must pass and one that must fail, under unguessable names."""

    path: str
    nonce: str
    passes: str
    fails: str

    @classmethod
    def plant(cls, suite: TestSettings, files: Iterable[str]) -> Self | None:
        """A canary for a suite whose tests, among the base's `files`, look like pytest's; else None.

        A suite told to stop at the first failure would stop at ours, so it gets none.
        """
        if _STOPS_EARLY.search(suite.command):
            return None
        below = "" if suite.dir in {".", ""} else suite.dir.strip("/") + "/"
        tests = [
            file for file in files if file.startswith(below) and _PYTHON_TEST.match(posixpath.basename(file))
        ]
        if not tests:
            return None
        folder = Counter(posixpath.dirname(test) for test in sorted(tests)).most_common(1)[0][0]
        example = min(test for test in tests if posixpath.dirname(test) == folder)
        nonce, passes, fails = (f"zz{secrets.token_hex(8)}" for _ in range(3))
        suffixed = not posixpath.basename(example).startswith("test_")
        name = f"{nonce}_test.py" if suffixed else f"test_{nonce}.py"
        return cls(path=posixpath.join(folder, name), nonce=nonce, passes=passes, fails=fails)

    @property
    def source(self) -> bytes:
        return _SOURCE.format(nonce=self.nonce, passes=self.passes, fails=self.fails).encode()

    def split(self, tests: Mapping[str, TestOutcome]) -> tuple[CanaryState, dict[str, TestOutcome]]:
        """What became of the canary, and the results without it."""
        mine = {test: outcome for test, outcome in tests.items() if self.nonce in test}
        rest = {test: outcome for test, outcome in tests.items() if test not in mine}
        if not mine:
            return "absent", rest
        # Some runners put the whole dotted name of a test where its name belongs.
        told = {re.split(r"::|\.", test)[-1]: outcome for test, outcome in mine.items()}
        truth = {f"test_{self.passes}": "passed", f"test_{self.fails}": "failed"}
        return ("sound" if told == truth else "lied"), rest
