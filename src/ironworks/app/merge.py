"""The human's click on the local forge: fast-forwards the base branch to a proved commit, or says why not.

Nothing of the factory imports this module; a test holds that.
"""

from pathlib import Path
from typing import NamedTuple

from ironworks.core.errors import ConfigError, ConflictError, MissingError, RefusedError
from ironworks.core.models import PullRequest
from ironworks.core.policy import INTEGRATION_PULL
from ironworks.core.ports import Forge
from ironworks.git.depot import Depot
from ironworks.git.repository import Repository

MARK_TRIES = 20


class Merged(NamedTuple):
    """What the base branch is now, and which issues that closes. `checkout` is the folder updated, if any."""

    base: str
    before: str
    commit: str
    issues: tuple[str, ...]
    checkout: Path | None


def merge_pull(forge: Forge, depot: Depot, id: str) -> Merged:
    """Merge pull request `id` into its base branch, by fast-forward only.

    Raises MissingError (no such pull request), RefusedError (its state forbids merging), ConflictError (the
    base branch or the checkout stands in the way). Repeating it after a crash finishes what was begun.
    """
    pull = forge.pull(id)
    if pull is None:
        raise MissingError(f"there is no pull request {id!r}", hint="ironworks pr list")
    _check_state(pull)
    _check_closed(forge, pull)
    tip = depot.sync(pull.base)
    _check_commits(depot, pull, tip)
    checkout = None
    if not depot.is_ancestor(pull.head, tip):
        checkout = _advance(depot, pull, tip)
    issues = _mark(forge, pull)
    return Merged(pull.base, tip, pull.head, issues, checkout)


def close_pull(forge: Forge, id: str, reason: str) -> PullRequest:
    """Close a pull request without merging; MissingError, or RefusedError when it is merged already."""
    pull = forge.pull(id)
    if pull is None:
        raise MissingError(f"there is no pull request {id!r}", hint="ironworks pr list")
    if pull.state == "merged":
        raise RefusedError(f"pull request {id} is merged already")
    if pull.state == "landed":
        raise RefusedError(
            f"pull request {id} has landed: its work is on the integration branch, which stays",
            hint=f"merge what landed and revert it: git revert -m 1 COMMIT, of `Merge {id}`",
        )
    return _replace(forge, pull, state="closed", reason=reason)


def _check_state(pull: PullRequest) -> None:
    if pull.state == "merged":
        raise RefusedError(f"pull request {pull.id} is merged already")
    if pull.state == "closed":
        raise RefusedError(f"pull request {pull.id} is closed: {pull.reason or 'no reason given'}")
    if pull.state == "evicted":
        raise RefusedError(
            f"pull request {pull.id} was evicted from the integration branch: {pull.reason}",
            hint=f"ironworks retry {pull.id}",
        )


def _check_closed(forge: Forge, pull: PullRequest) -> None:
    """What a person has closed must not come in with the others."""
    states = {id: mine.state for id in pull.closes if pull.kind == "integration" and (mine := forge.pull(id))}
    closed = [id for id, state in states.items() if state == "closed"]
    if closed:
        raise RefusedError(
            f"{', '.join(closed)} is closed, and its work is on {pull.branch}",
            hint="to let it in all the same: ironworks retry ISSUE",
        )


def _check_commits(depot: Depot, pull: PullRequest, tip: str) -> None:
    found = depot.remote_ref(f"refs/heads/{pull.branch}")
    if found != pull.head:
        now = f"it is at {found[:12]} now" if found else "it is gone"
        raise RefusedError(
            f"branch {pull.branch} is not what was proved: {pull.head[:12]} was, and {now}",
            hint="the factory proves it anew: ironworks run",
        )
    if pull.kind == "integration" and not pull.closes:
        raise RefusedError("nothing has landed on the integration branch yet", hint="ironworks status")
    if depot.is_ancestor(pull.head, tip) or depot.is_ancestor(tip, pull.head):
        return
    if pull.kind == "integration":
        raise ConflictError(
            f"{pull.base} has moved since {pull.branch} was built: it must be rebuilt on the new {pull.base}"
            + (f"; {pull.reason}" if pull.reason else ""),
            hint="ironworks run",
        )
    raise ConflictError(
        f"{pull.base} has moved since {pull.branch} was proved",
        hint=f"ironworks pr merge {INTEGRATION_PULL} merges what was proved together",
    )


def _advance(depot: Depot, pull: PullRequest, tip: str) -> Path | None:
    """Move the base branch from `tip` to the pull request's head; the checkout that was updated, if any."""
    checkout = _checkout_of(depot.repository, pull.base)
    if checkout is not None:
        _fast_forward(checkout, pull)
        return checkout.path
    if not depot.push(f"refs/heads/{pull.base}", pull.head, expected=tip):
        raise ConflictError(f"{pull.base} was moved by somebody else just now", hint="try again")
    return None


def _checkout_of(repository: Repository, branch: str) -> Repository | None:
    """The work tree, linked ones included, in which `branch` is checked out."""
    listing = repository.git.run("worktree", "list", "--porcelain", "-z").decode("utf-8", "surrogateescape")
    for entry in listing.split("\0\0"):
        lines = entry.strip("\0").split("\0")
        if f"branch refs/heads/{branch}" in lines and "bare" not in lines:
            return _work_tree(Path(lines[0].removeprefix("worktree ")))
    return None


def _work_tree(path: Path) -> Repository:
    # git lists the main work tree by its git folder when it is asked from there.
    folder = path.parent if path.name == ".git" else path
    try:
        return Repository(folder)
    except ConfigError as error:
        raise RefusedError(
            f"the branch is checked out in {folder}, which is no usable work tree: {error}",
            hint="git worktree prune",
        ) from error


def _fast_forward(checkout: Repository, pull: PullRequest) -> None:
    """`git merge --ff-only` in the user's checkout, with no hook, filter or setting of it run."""
    git, env = checkout.git, {"GIT_WORK_TREE": str(checkout.path)}
    who = {"GIT_COMMITTER_NAME": "ironworks pr merge", "GIT_COMMITTER_EMAIL": "ironworks@localhost"}
    flags = ["-c", "core.logAllRefUpdates=true", "-c", "merge.autoStash=false", *_without_filters(checkout)]
    merge = ("merge", "--ff-only", "--no-autostash", "--quiet", pull.head)
    done = git.call(*flags, *merge, env=env | who, timeout_s=600)
    if done.code:
        raise ConflictError(
            f"the checkout at {checkout.path} cannot be fast-forwarded:\n{done.reason}",
            hint=f"commit or stash what is named above, then: ironworks pr merge {pull.id}",
        )


def _without_filters(checkout: Repository) -> list[str]:
    """Flags that switch off every clean and smudge program that the repository's own config defines."""
    listing = checkout.git.run("config", "--null", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1))
    names = {
        name.rpartition(".")[0] for name in listing.decode("utf-8", "surrogateescape").split("\0") if name
    }
    keys = ("clean=", "smudge=", "process=", "required=false")
    return [part for name in sorted(names) for key in keys for part in ("-c", f"{name}.{key}")]


def _mark(forge: Forge, pull: PullRequest) -> tuple[str, ...]:
    """Mark the record as merged, and with the integration those of the issues it brought."""
    issues = []
    for id in pull.closes if pull.kind == "integration" else ():
        mine = forge.pull(id)
        if mine is not None and mine.state not in {"merged", "closed", "evicted"}:
            _replace(forge, mine, state="merged", reason="")
        issues.append(id)
    _replace(forge, pull, state="merged", reason="")
    return tuple(issues) if pull.kind == "integration" else (pull.id,)


def _replace(forge: Forge, pull: PullRequest, **changes: str) -> PullRequest:
    """Write the record by compare-and-set, against whoever else writes it."""
    for _ in range(MARK_TRIES):
        new = pull.model_copy(update=changes)
        if forge.put_pull(new, expected=pull):
            return new
        found = forge.pull(pull.id)
        if found is None:
            raise MissingError(f"the record of pull request {pull.id} has gone")
        pull = found
    raise ConflictError(f"the record of pull request {pull.id} keeps changing", hint="try again")
