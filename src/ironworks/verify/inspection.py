"""What can be said of a change without running it: scope, deletions, secrets, weaker tests and so on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ironworks.core.models import Finding, Issue
from ironworks.verify.candidate import Candidate, FileChange
from ironworks.verify.path import is_protected, is_test, matches, names
from ironworks.verify.secret import secrets_added
from ironworks.verify.weakening import always_equal, weakened_tests

MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Mandate:
    """What the change may do, none of it said by the worker."""

    issue: Issue
    scope: tuple[str, ...] = ()
    """The triage's globs; empty = anywhere."""
    bounds: tuple[str, ...] = ()
    """The project's globs, which no triage widens; empty = anywhere."""
    protected: tuple[str, ...] = ()

    def names(self, path: str) -> bool:
        """Whether the issue, or the scope without a wildcard, speaks of exactly this file."""
        plain = {glob.strip().removeprefix("./") for glob in self.scope}
        return path in plain or names(self.text, path)

    @property
    def text(self) -> str:
        return "\n".join((self.issue.title, self.issue.body, *self.issue.comments))

    def admits(self, file: FileChange) -> bool:
        """Whether the file is in scope. A new test always is, as far as the project allows it."""
        scope = () if is_test(file.path) and not file.existed else self.scope
        return all(not globs or matches(file.path, globs) for globs in (scope, self.bounds))


def inspect(candidate: Candidate, mandate: Mandate) -> list[Finding]:
    """Every finding, the fatal ones first, bounded in number."""
    checks: Sequence[Callable[[], Iterator[Finding]]] = (
        lambda: _out_of_scope(candidate, mandate),
        lambda: _deletions(candidate, mandate),
        lambda: _secrets(candidate),
        lambda: _pretenders(candidate),
        lambda: _unread(candidate),
        lambda: _protected(candidate, mandate),
        lambda: _weakened(candidate),
    )
    found = [finding for check in checks for finding in check()]
    return sorted(found, key=lambda finding: not finding.fatal)[:MOST_FINDINGS]


def _out_of_scope(candidate: Candidate, mandate: Mandate) -> Iterator[Finding]:
    for file in candidate.files:
        if not mandate.admits(file):
            message = f"{file.name} is outside the scope of this issue"
            yield Finding(code="out-of-scope", message=message, fatal=True, path=file.name)


def _deletions(candidate: Candidate, mandate: Mandate) -> Iterator[Finding]:
    added = {line for file in candidate.files for line in _lines(file.new) - _lines(file.old)}
    for file in candidate.files:
        if file.exists or mandate.names(file.path):
            continue
        lines = _lines(file.old)
        moved = bool(lines) and 2 * len(lines & added) >= len(lines)
        message = (
            f"{file.name} is gone, its lines are elsewhere"
            if moved
            else f"{file.name} is deleted, which neither the issue nor the scope names"
        )
        code = "moved" if moved else "deleted-file"
        yield Finding(code=code, message=message, fatal=not moved, path=file.name)


def _lines(data: bytes | None) -> frozenset[bytes]:
    return frozenset(line for raw in (data or b"").splitlines() if len(line := raw.strip()) > 3)


def _secrets(candidate: Candidate) -> Iterator[Finding]:
    for file in candidate.files:
        for line, kind in secrets_added(file.old or b"", file.new or b""):
            message = f"{file.name}:{line} holds what looks like {kind}"
            yield Finding(code="secret", message=message, fatal=True, path=file.name)


def _pretenders(candidate: Candidate) -> Iterator[Finding]:
    for file in candidate.files:
        if file.path.endswith(".py") and not is_test(file.path):
            known = always_equal(file.old or b"")
            for name in always_equal(file.new or b""):
                if name not in known:
                    message = f"class {name} in {file.name} is equal to everything"
                    yield Finding(code="always-equal", message=message, fatal=True, path=file.name)


def _unread(candidate: Candidate) -> Iterator[Finding]:
    for file in candidate.files:
        if file.exists and file.new is None:
            message = f"{file.name} was not looked into: it is large, or a submodule"
            yield Finding(code="not-inspected", message=message, fatal=False, path=file.name)


def _protected(candidate: Candidate, mandate: Mandate) -> Iterator[Finding]:
    for file in candidate.files:
        if file.reconfigures:
            message = f"{file.name} changes how the tests are run"
            yield Finding(code="test-configuration", message=message, fatal=False, path=file.name)
        elif is_protected(file.path, mandate.protected):
            message = f"{file.name} is a protected path"
            yield Finding(code="protected-path", message=message, fatal=False, path=file.name)


def _weakened(candidate: Candidate) -> Iterator[Finding]:
    for file in candidate.files:
        if file.path.endswith(".py") and is_test(file.path) and file.old and file.new:
            for code, message in weakened_tests(file.old, file.new):
                yield Finding(code=code, message=f"{file.name}: {message}", fatal=False, path=file.name)
