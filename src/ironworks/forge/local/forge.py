"""The forge without a server: a backlog file, and pull requests as records in the repository."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import AwareDatetime

from ironworks.core.clock import Clock
from ironworks.core.crash import crash_point
from ironworks.core.errors import ConfigError
from ironworks.core.models import Issue, Model, PullRequest
from ironworks.forge.local.backlog import MAX_BYTES, parse
from ironworks.forge.record import RETRIES, encoded, file_in, parsed, record_ref
from ironworks.git.command import UPLOAD_PACK
from ironworks.git.depot import Depot
from ironworks.git.ref import is_ref
from ironworks.git.tree import Blob

PULLS = "refs/ironworks/pulls/"
PULL_FILE = "pull.json"
QUESTIONS_FILE = "questions.json"


class Questions(Model):
    """What a factory wants to know before it builds an issue."""

    issue: str
    questions: tuple[str, ...]
    asked_at: AwareDatetime


class LocalForge:
    """A `Forge` whose shared state is refs of the repository behind `depot`: all factories see the same.

    `backlog` is read anew by every `issues()` and never written; None = there are no issues.
    """

    name = "local"

    def __init__(self, depot: Depot, backlog: Path | None, clock: Clock) -> None:
        self._depot = depot
        self._backlog = backlog
        self._clock = clock

    def issues(self) -> list[Issue]:
        """Every entry; closed when it is ticked, or a pull request that closes it is merged.

        ConfigError when the backlog cannot be read, or what is in it cannot be meant.
        """
        if self._backlog is None:
            return []
        issues = parse(self._label(self._backlog), _read(self._backlog))
        merged = self._merged()
        return [issue.model_copy(update={"closed": issue.closed or issue.id in merged}) for issue in issues]

    def pulls(self) -> list[PullRequest]:
        """Every pull request; a record that is not one of ours is left out with a warning."""
        records = self._depot.remote_refs(PULLS)
        found = [self._pull(ref.removeprefix(PULLS), oid) for ref, oid in records.items()]
        return [pull for pull in found if pull is not None]

    def pull(self, id: str) -> PullRequest | None:
        return self._look(id)[1]

    def put_pull(self, pull: PullRequest, *, expected: PullRequest | None) -> bool:
        """Create or replace by compare-and-set; True also when it is there already, so it can be repeated.

        A record that is not one of ours counts as absent and is replaced. RefusedError for a pull request
        that is too large; GitError when the repository cannot be written.
        """
        data = encoded(pull)
        held, current = self._look(pull.id)
        if current == pull:
            return True
        if current != expected:
            return False
        return self._put("pulls", pull.id, PULL_FILE, data, f"{pull.state}: {pull.title}", held)

    def ask(self, issue: str, questions: Sequence[str]) -> None:
        """Leave the questions at `refs/ironworks/questions/<issue>`; `ironworks show` has them too."""
        ref = record_ref("questions", issue)
        asked = Questions(issue=issue, questions=tuple(questions), asked_at=self._clock.now())
        for _ in range(RETRIES):
            held = self._depot.remote_ref(ref) or ""
            before = parsed(Questions, file_in(self._depot, held, QUESTIONS_FILE), ref) if held else None
            if before is not None and before.questions == asked.questions:
                return
            if self._put("questions", issue, QUESTIONS_FILE, encoded(asked), f"Questions on {issue}", held):
                return

    def _look(self, id: str) -> tuple[str, PullRequest | None]:
        """What a pull request's ref points at (empty: nothing) and what that says (None: not ours)."""
        held = self._depot.remote_ref(record_ref("pulls", id)) or ""
        return held, self._pull(id, held) if held else None

    def _pull(self, id: str, oid: str) -> PullRequest | None:
        pull = parsed(PullRequest, file_in(self._depot, oid, PULL_FILE), PULLS + id)
        return pull if pull is not None and pull.id == id else None

    def _put(self, folder: str, name: str, file: str, data: bytes, message: str, held: str) -> bool:
        tree = self._depot.write_tree(None, {file: Blob(data)})
        parents = [held] if held and self._has(held) else []
        commit = self._depot.commit(tree, parents, " ".join(message.split()))
        crash_point("pull.before_write")
        written = self._depot.push(record_ref(folder, name), commit, expected=held or None)
        crash_point("pull.after_write")
        return written

    def _has(self, oid: str) -> bool:
        """Bring a record another factory wrote into the depot, as history; False if it is no commit."""
        if self._depot.resolve(oid) is None and file_in(self._depot, oid, PULL_FILE) is not None:
            options = ("--no-tags", "--no-write-fetch-head", "--quiet", UPLOAD_PACK)
            self._depot.git.run("fetch", *options, str(self._depot.repository.path), oid)
        return self._depot.resolve(oid) is not None

    def _merged(self) -> set[str]:
        """Ids of issues whose work a person merged, by our record or by the base branch's own history."""
        ids: set[str] = set()
        for pull in self.pulls():
            if pull.state == "merged" or (pull.state in {"open", "landed"} and self._is_in_base(pull)):
                ids.update(pull.closes if pull.kind == "integration" else {pull.id})
        return ids

    def _is_in_base(self, pull: PullRequest) -> bool:
        branch = f"refs/heads/{pull.base}"
        tip = self._depot.remote_ref(branch) if is_ref(branch) else None
        if tip is None:
            return False
        return self._depot.repository.git.call("merge-base", "--is-ancestor", pull.head, tip).code == 0

    def _label(self, backlog: Path) -> str:
        """The backlog's path within the repository, else its name: the same on every machine."""
        try:
            return backlog.resolve().relative_to(self._depot.repository.path.resolve()).as_posix()
        except ValueError:
            return backlog.name


def _read(backlog: Path) -> bytes:
    if not backlog.is_file():
        raise ConfigError(
            f"there is no backlog at {backlog}", hint="write one, or name it with --backlog FILE"
        )
    try:
        with backlog.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{backlog} cannot be read: {error.strerror}") from error
