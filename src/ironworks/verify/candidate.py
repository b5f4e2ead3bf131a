"""The commit that is judged, the work merged onto the tip, and the trees made from it to prove things."""

from collections.abc import Iterator
from dataclasses import dataclass

from ironworks.core.errors import RefusedError
from ironworks.core.models import Finding
from ironworks.git.depot import Depot
from ironworks.git.tree import Change, TreeEntry
from ironworks.verify.path import is_test, reconfigures, shown

READ_BYTES = 5_000_000
MOST_FILES = 2000


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that differs from the tip. Contents are None where absent, or too large to be looked into."""

    path: str
    existed: bool
    exists: bool
    old: bytes | None
    new: bytes | None
    runs_tests: bool = False
    """A suite's command names it: `python3 check.py`."""

    @property
    def name(self) -> str:
        """The path as people see it."""
        return shown(self.path)

    @property
    def concerns_tests(self) -> bool:
        """Whether it is part of the tests or of how they are run."""
        return is_test(self.path) or self.reconfigures

    @property
    def reconfigures(self) -> bool:
        """Whether its change may alter how tests are found, run or reported."""
        return self.runs_tests or reconfigures(self.path, self.old, self.new)


@dataclass(frozen=True, slots=True)
class Candidate:
    """`commit` is `onto` with the work in it."""

    onto: str
    commit: str
    files: tuple[FileChange, ...]

    @property
    def touches_existing_tests(self) -> bool:
        """Whether tests that were there, or how they are run, changed: then base's own must run too."""
        return any(file.concerns_tests and (file.existed or file.reconfigures) for file in self.files)

    @property
    def test_files(self) -> list[str]:
        """Paths of the tests it adds or changes."""
        return [file.path for file in self.files if file.exists and is_test(file.path)]


def merge_onto(
    depot: Depot, work: str, onto: str, runners: frozenset[str] = frozenset()
) -> Candidate | Finding:
    """Merge `work` onto `onto`; a finding says why there is nothing to judge.

    `runners`: paths that the suites' commands name.
    """
    if depot.resolve(work) is None:
        return Finding(code="missing-commit", message=f"there is no commit {work}", fatal=True)
    if depot.merge_base(onto, work) is None:
        return Finding(code="unrelated", message="the work shares no history with the base", fatal=True)
    commit = work
    if not depot.is_ancestor(onto, work):
        merge = depot.merge(onto, work)
        if not merge.clean:
            paths = ", ".join(sorted({shown(conflict.path) for conflict in merge.conflicts})[:20])
            message = f"the work conflicts with the base in {paths}"
            return Finding(code="conflict", message=message, fatal=True)
        commit = depot.commit(merge.tree, (onto, work), f"Merge {work} for verification")
    changes = depot.changes(onto, commit)
    if not changes:
        return Finding(code="empty", message="the work changes nothing", fatal=True)
    if len(changes) > MOST_FILES:
        message = f"the work changes {len(changes)} files, more than the {MOST_FILES} that are looked into"
        return Finding(code="too-large", message=message, fatal=True)
    return Candidate(onto, commit, tuple(_file_changes(depot, onto, commit, changes, runners)))


def _file_changes(
    depot: Depot, onto: str, commit: str, changes: list[Change], runners: frozenset[str]
) -> Iterator[FileChange]:
    for change in changes:
        existed, exists = change.status != "A", change.status != "D"
        old = _read(depot, onto, change.path) if existed else None
        new = _read(depot, commit, change.path) if exists else None
        yield FileChange(change.path, existed, exists, old, new, change.path in runners)


def _read(depot: Depot, commit: str, path: str) -> bytes | None:
    try:
        return depot.read(commit, path, max_bytes=READ_BYTES)
    except RefusedError:
        return None


def with_base_tests(depot: Depot, candidate: Candidate) -> str:
    """The candidate's sources under the base's own tests and test configuration, as a commit."""
    base = depot.files(candidate.onto)
    changes = {file.path: base.get(file.path) for file in candidate.files if file.concerns_tests}
    tree = depot.write_tree(candidate.commit, changes)
    return depot.commit(tree, (candidate.onto,), "Base's own tests over the work")


def with_base_sources(depot: Depot, candidate: Candidate) -> str | None:
    """The candidate's tests over the base's sources, as a commit; None when it has no test of its own."""
    if not candidate.test_files:
        return None
    mine = depot.files(candidate.commit)
    changes: dict[str, TreeEntry | None] = {
        file.path: mine[file.path] for file in candidate.files if file.exists and file.concerns_tests
    }
    tree = depot.write_tree(candidate.onto, changes)
    return depot.commit(tree, (candidate.onto,), "The work's tests over the base")
