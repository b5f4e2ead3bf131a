"""Runs the tests with which a reviewer shows a finding: what does not fail for that reason blocks nothing."""

import asyncio
import posixpath
import re

from ironworks.core.handoffs import Reproduction, ReviewFinding, ReviewReport
from ironworks.core.models import Finding
from ironworks.git.depot import Depot
from ironworks.verify.comparison import belongs, stem
from ironworks.verify.path import is_test
from ironworks.verify.suite import SuiteRun, Suites

MOST = 20
_BROKEN = re.compile(
    r"\s*(?:\w+\.)*(?:ImportError|ModuleNotFoundError|NameError|SyntaxError|IndentationError|TabError|"
    r"AttributeError: module ')"
)
_LOCATION = re.compile(r"^(\S+):\d+: \w+\s*\Z", re.MULTILINE)


async def reproduce(
    suites: Suites, depot: Depot, commit: str, review: ReviewReport, name: str
) -> tuple[Finding, ...]:
    """One finding for each reproduction, in order: `reproduced` and fatal, or `not-reproduced`."""
    shown = [finding for finding in review.findings if finding.reproduction][:MOST]
    told = []
    for number, finding in enumerate(shown):
        assert finding.reproduction is not None
        failed, detail = await _try(suites, depot, commit, finding.reproduction, f"{name}-{number}")
        told.append(_finding(finding, reproduced=failed, detail=detail))
    return tuple(told)


def _finding(shown: ReviewFinding, *, reproduced: bool, detail: str) -> Finding:
    return Finding(
        code="reproduced" if reproduced else "not-reproduced",
        message=shown.claim,
        fatal=reproduced,
        path=shown.path,
        detail=detail,
    )


async def _try(
    suites: Suites, depot: Depot, commit: str, reproduction: Reproduction, name: str
) -> tuple[bool, str]:
    """Whether it fails as a reproduction must, and what was seen."""
    reason = await asyncio.to_thread(_unfit, depot, commit, reproduction.path)
    if reason:
        return False, reason
    path = reproduction.path
    homes = [suite for suite in suites.tests if suite.dir in {".", ""} or path.startswith(f"{suite.dir}/")]
    if not homes:
        return False, f"{path} is in no suite's folder"
    home = max(homes, key=lambda suite: len(suite.dir))
    module = f"{home.name}::::{posixpath.splitext(path)[0].replace('/', '.')}"
    content = reproduction.content.encode("utf-8", "surrogatepass")
    run = await suites.run(commit, name=name, files={path: content}, only=frozenset({module}))
    return judge(run, reproduction)


def _unfit(depot: Depot, commit: str, path: str) -> str:
    """Why a file cannot be put at `path`; empty if it can."""
    if path != posixpath.normpath(path) or path.startswith(("/", "..", ".git/")) or not path.isprintable():
        return f"{path!r} is no plain path in the repository"
    if not is_test(path):
        return f"{path} does not look like a test file"
    known = depot.files(commit)
    folders = path.split("/")
    above = ("/".join(folders[:depth]) for depth in range(1, len(folders) + 1))
    if any(name in known for name in above) or any(name.startswith(f"{path}/") for name in known):
        return f"{path} exists already: a reproduction is a new file"
    return ""


def judge(run: SuiteRun, reproduction: Reproduction) -> tuple[bool, str]:
    """Whether one of its tests ran and failed, for a reason that is not the test's own fault."""
    if run.problem:
        return False, run.problem
    path, content = reproduction.path, reproduction.content
    mine = {
        test: outcome
        for test, outcome in run.tests.items()
        if belongs(test, path) and stem(test).rpartition("::")[2].rpartition(".")[2] in content
    }
    failed = [test for test, outcome in mine.items() if outcome == "failed"]
    for test in failed:
        message = run.messages.get(test, "")
        if not _own_fault(message, path):
            return True, f"{test}\n{message}"
    broken = [*failed, *(test for test in run.failing if belongs(test, path))]
    if broken:
        return False, f"the test itself is broken: {run.messages.get(broken[0], '')}"
    return False, "its tests pass" if mine else "its tests were not collected"


def _own_fault(message: str, path: str) -> bool:
    location = _LOCATION.search(message)
    elsewhere = location is not None and not location[1].endswith(posixpath.basename(path))
    return bool(_BROKEN.match(message)) and not elsewhere
