"""Reads the reports of test runners, JUnit XML and TAP, written by programs that may be hostile."""

import hashlib
import re
from xml.parsers import expat

from ironworks.core.errors import RefusedError
from ironworks.core.models import Model, TestOutcome

MAX_TESTS = 200_000
MAX_DEPTH = 100
MAX_NAME = 1000
MAX_NAMES = 20_000_000
"""Characters of all names together."""
MAX_MESSAGE = 2000
MAX_MESSAGES = 1000

_SEVERITY: dict[TestOutcome, int] = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


class Report(Model):
    """Per-test results under ids `suite::classname::name`; `messages` of those that failed or error."""

    tests: dict[str, TestOutcome] = {}
    messages: dict[str, str] = {}
    runner: str = ""
    """What the outermost test suite calls itself, such as `pytest`; empty for TAP."""


def parse(data: bytes, suite: str) -> Report:
    """The results in `data`, told apart by its first byte. RefusedError says why it is neither format."""
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise RefusedError("the report is empty")
    if text[:1] == b"<" or data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return _JUnit(suite).read(data)
    return _tap(text.decode("utf-8", "replace"), suite)


class _Results:
    """Collects outcomes; of two results under one id the worse counts."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.tests: dict[str, TestOutcome] = {}
        self.messages: dict[str, str] = {}
        self.size = 0

    def add(self, where: str, name: str, outcome: TestOutcome, message: str = "") -> None:
        test = f"{self.suite}::{_short(where)}::{_short(name)}"
        self.size += len(test)
        if len(self.tests) >= MAX_TESTS or self.size > MAX_NAMES:
            raise RefusedError("the report is too long")
        known = self.tests.get(test)
        if known is None or _SEVERITY[outcome] >= _SEVERITY[known]:
            self.tests[test] = outcome
        if outcome in {"failed", "error"} and len(self.messages) < MAX_MESSAGES:
            self.messages.setdefault(test, message)


def _short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


class _JUnit:
    def __init__(self, suite: str) -> None:
        self.results = _Results(suite)
        self.path: list[str] = []
        self.suites: list[str] = []
        self.runner = ""
        self.case: dict[str, str] = {}
        self.outcome: TestOutcome = "passed"
        self.message = ""
        self.text: list[str] = []

    def read(self, data: bytes) -> Report:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            if isinstance(error, RefusedError):
                raise
            raise RefusedError(f"the report is not well-formed XML: {error}") from error
        return Report(tests=self.results.tests, messages=self.results.messages, runner=self.runner)

    def _doctype(self, *_: object) -> None:
        raise RefusedError("the report declares a document type")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.path and tag not in {"testsuites", "testsuite"}:
            raise RefusedError(f"the report is XML but not JUnit: its root is <{tag[:40]}>")
        self.path.append(tag)
        if len(self.path) > MAX_DEPTH:
            raise RefusedError(f"the report is nested deeper than {MAX_DEPTH}")
        if tag == "testsuite":
            self.suites.append(attributes.get("name", ""))
            self.runner = self.runner or self.suites[0]
        elif tag == "testcase":
            self.case, self.outcome, self.message = attributes, "passed", ""
            if attributes.get("status") in {"notrun", "skipped", "disabled"}:
                self.outcome = "skipped"
        elif self._in_case():
            self._verdict(tag, attributes)

    def _in_case(self) -> bool:
        return len(self.path) >= 2 and self.path[-2] == "testcase"

    def _verdict(self, tag: str, attributes: dict[str, str]) -> None:
        outcomes: dict[str, TestOutcome] = {"failure": "failed", "error": "error", "skipped": "skipped"}
        outcome = outcomes.get(tag)
        if outcome and _SEVERITY[outcome] > _SEVERITY[self.outcome]:
            self.outcome, self.message, self.text = outcome, attributes.get("message", ""), []

    def _characters(self, text: str) -> None:
        if self.path[-1] in {"failure", "error"}:
            self.text.append(text)

    def _end(self, tag: str) -> None:
        self.path.pop()
        if tag == "testsuite":
            self.suites.pop()
        elif tag == "testcase":
            message = f"{self.message[: MAX_MESSAGE // 2]}\n{''.join(self.text)[-MAX_MESSAGE // 2 :]}".strip()
            self.results.add(self._where(), self.case.get("name", ""), self.outcome, message)
            self.text = []

    def _where(self) -> str:
        """The class; where a runner gives none (node says `test`), the titles around the test."""
        named = self.case.get("classname", "test")
        return named if named != "test" else " > ".join(filter(None, self.suites)) or named


_TAP_LINE = re.compile(r"^( *)(not )?ok\b(?: +(\d+))?(?: *-)? *(.*)$")
_TAP_PLAN = re.compile(r"^1\.\.(\d+)")
_TAP_TITLE = re.compile(r"^( *)# Subtest: (.*)$")
_TAP_DIRECTIVE = re.compile(r"(?<!\\)# *(skip|todo)\b", re.IGNORECASE)


def _tap(text: str, suite: str) -> Report:
    """TAP 12 to 14. A parent whose subtests are listed stands for itself as well."""
    results = _Results(suite)
    titles: dict[int, str] = {}
    planned: int | None = None
    top = 0
    for line in text.splitlines():
        if line.startswith("Bail out!"):
            raise RefusedError(f"the tests gave up: {line[:200]}")
        if plan := _TAP_PLAN.match(line):
            planned = int(plan[1][:9])
        elif title := _TAP_TITLE.match(line):
            indent = len(title[1])
            titles = {depth: name for depth, name in titles.items() if depth < indent} | {indent: title[2]}
        elif found := _TAP_LINE.match(line):
            indent = len(found[1])
            top += indent == 0
            name, outcome = _tap_outcome(found[4], failed=bool(found[2]))
            where = " > ".join(title for depth, title in titles.items() if depth < indent)
            results.add(where, name or str(found[3]), outcome)
    if not results.tests:
        raise RefusedError("the report is neither JUnit XML nor TAP")
    if planned != top:
        raise RefusedError(f"the report says it has {planned} tests but holds {top}")
    return Report(tests=results.tests, messages=results.messages)


def _tap_outcome(description: str, *, failed: bool) -> tuple[str, TestOutcome]:
    directive = _TAP_DIRECTIVE.search(description)
    name = description[: directive.start()].strip() if directive else description.strip()
    if directive:
        return name, "skipped"
    return name, "failed" if failed else "passed"
