"""`ironworks pr`: list, show, compare, merge or close pull requests of the local forge."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ironworks.cli.options import json_option, place_of, place_options
from ironworks.cli.output import columns, note, print_json, say, short
from ironworks.core.errors import ConflictError, MissingError, RefusedError

if TYPE_CHECKING:
    from ironworks.core.models import PullRequest
    from ironworks.forge.local.forge import LocalForge
    from ironworks.git.depot import Depot

DIFF_BYTES = 20_000_000


@click.group("pr", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List, show, compare, merge or close pull requests of the local forge."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Merged, closed and evicted ones too.")
@place_options
@json_option
def list_(every: bool, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """List pull requests, newest facts first from the repository itself."""
    forge, _ = _forge(repository, state)
    pulls = [pull for pull in forge.pulls() if every or pull.state in {"open", "landed"}]
    if as_json:
        print_json([pull.model_dump(mode="json") for pull in pulls])
    elif not pulls:
        say("no pull requests" if every else "no open pull requests; --all shows the others")
    else:
        rows = [(pull.id, pull.state, pull.head[:12], pull.branch, short(pull.title, 60)) for pull in pulls]
        say(columns([("ID", "STATE", "HEAD", "BRANCH", "TITLE"), *rows]))


@command.command("show")
@click.argument("id")
@place_options
@json_option
def show(id: str, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Show one pull request with its evidence."""
    forge, _ = _forge(repository, state)
    pull = _pull(forge, id)
    if as_json:
        print_json(pull.model_dump(mode="json"))
        return
    say(f"{pull.id}: {pull.title}\n{pull.state}, {pull.branch} ({pull.head[:12]}) → {pull.base}")
    if pull.closes:
        say(f"closes: {', '.join(pull.closes)}")
    if pull.reason:
        say(f"reason: {pull.reason}")
    say(f"\n{pull.body}")


@command.command("diff")
@click.argument("id")
@place_options
@json_option
def diff(id: str, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Show what one pull request changes, compared with where it left its base."""
    forge, depot = _forge(repository, state)
    pull = _pull(forge, id)
    depot.sync(pull.base)
    fork = depot.merge_base(f"refs/heads/{pull.base}", pull.head)
    if fork is None:
        raise ConflictError(f"{pull.branch} and {pull.base} share no history")
    patch = depot.diff(fork, pull.head, max_bytes=DIFF_BYTES)
    if as_json:
        print_json({"id": pull.id, "from": fork, "to": pull.head, "diff": patch})
    else:
        say(patch.rstrip("\n"))


@command.command("merge")
@click.argument("id", default="integration")
@place_options
@json_option
def merge(id: str, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Fast-forward the base branch to a proved pull request; ID is `integration` unless named.

    Refuses, and says why, when the checkout has changes in the way, when the base has moved on, or when what
    the branch holds is not what was proved. Exit code: 0 merged, 1 refused.
    """
    from ironworks.app.merge import merge_pull

    forge, depot = _forge(repository, state)
    with _refusals(as_json) as refused:
        merged = merge_pull(forge, depot, id)
    if refused:
        return 1
    if as_json:
        checkout = str(merged.checkout) if merged.checkout else None
        print_json({**merged._asdict(), "checkout": checkout, "merged": True})
    else:
        say(f"{merged.base}: {merged.before[:12]} → {merged.commit[:12]}, closes {', '.join(merged.issues)}")
        if merged.checkout:
            say(f"the checkout at {merged.checkout} was brought up to date")
    return 0


@command.command("close")
@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Shown wherever the pull request is.")
@place_options
@json_option
def close(id: str, reason: str, repository: Path | None, state: Path | None, as_json: bool) -> int:
    """Close a pull request without merging it."""
    from ironworks.app.merge import close_pull

    forge, _ = _forge(repository, state)
    with _refusals(as_json) as refused:
        pull = close_pull(forge, id, reason)
    if refused:
        return 1
    if as_json:
        print_json(pull.model_dump(mode="json"))
    else:
        say(f"{pull.id} is closed")
    return 0


def _forge(repository: Path | None, state: Path | None) -> "tuple[LocalForge, Depot]":
    from ironworks.app.place import make_state
    from ironworks.core.clock import SystemClock
    from ironworks.forge.local.forge import LocalForge
    from ironworks.git.depot import Depot

    place = place_of(repository, state)
    make_state(place)
    depot = Depot(place.depot, place.git_dir)
    return LocalForge(depot, None, SystemClock()), depot


def _pull(forge: "LocalForge", id: str) -> "PullRequest":
    pull = forge.pull(id)
    if pull is None:
        raise MissingError(f"there is no pull request {id!r}", hint="ironworks pr list --all")
    return pull


@contextmanager
def _refusals(as_json: bool) -> Iterator[list[str]]:
    """A refusal is an answer, not a failure of ours: it is said, and noted in the list that is given."""
    refused: list[str] = []
    try:
        yield refused
    except (RefusedError, ConflictError) as error:
        refused.append(error.code)
        if as_json:
            print_json(
                {"merged": False, "error": {"code": error.code, "message": error.message, "hint": error.hint}}
            )
        note(f"error[{error.code}]: {error.message}" + (f"\n  hint: {error.hint}" if error.hint else ""))
