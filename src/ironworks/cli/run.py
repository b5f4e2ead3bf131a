"""`ironworks run`: work on the issues of a backlog, here or in the background."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ironworks.app.place import Place
from ironworks.cli.options import PATH, config_option, json_option, place_of, place_options, suggestion
from ironworks.cli.output import print_json, say
from ironworks.core.crash import crash_point
from ironworks.core.errors import ConfigError, MissingError, UsageError
from ironworks.store.reader import Reader

if TYPE_CHECKING:
    from ironworks.app.configuration import Loaded
    from ironworks.core.report import Grade, RunReport
    from ironworks.engine.factory import Factory

DEFAULT_BACKLOG = "backlog.md"


class Order(NamedTuple):
    """What a run was asked for."""

    place: Place
    backlog: Path
    issues: tuple[str, ...]
    quiet: bool


@click.command("run")
@click.option("--backlog", type=PATH, metavar="FILE", help="Default: the last run's, else backlog.md.")
@click.option(
    "--issue",
    "issues",
    multiple=True,
    metavar="ID",
    help="Only this issue, and what a stopped run has begun; may be repeated.",
)
@click.option("--agent", metavar="NAME", help="Which agent works.")
@click.option("--parallel", type=click.IntRange(1, 1000), metavar="N", help="Issues worked on at once.")
@click.option("--budget-usd", type=click.FloatRange(0, min_open=True), metavar="X", help="The run's cap.")
@click.option("--detach", is_flag=True, help="Go on in the background; `ironworks attach` returns.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@config_option
@place_options
@json_option
def command(
    backlog: Path | None,
    issues: tuple[str, ...],
    agent: str | None,
    parallel: int | None,
    budget_usd: float | None,
    detach: bool,
    quiet: bool,
    config: Path | None,
    repository: Path | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Work on every open issue of the backlog, until each has landed or rests with a way out.

    Ctrl-C stops cleanly, twice at once; the work is captured either way, and the next run goes on from there.
    Exit code: 0 all landed (or asked, rejected, skipped), 1 something is parked or evicted, 2 usage or
    configuration, 3 the factory itself failed.
    """
    place = place_of(repository, state, backlog)
    order = Order(place, _backlog(place, backlog), issues, quiet)
    from ironworks.app.configuration import Overrides
    from ironworks.app.factory import tell
    from ironworks.cli.loading import loaded_for
    from ironworks.cli.summary import as_text

    loaded = loaded_for(place, config, Overrides(agent, parallel, budget_usd))
    if detach:
        from ironworks.cli.background import detached

        return detached(place, order.backlog, _again(issues, agent, parallel, budget_usd, config), as_json)
    report, grade = asyncio.run(_work(order, loaded))
    if as_json:
        graded = {"grade": grade.model_dump(mode="json")} if grade else {}
        print_json(report.model_dump(mode="json") | graded)
    else:
        say(as_text(report))
    crash_point("run.before_told")
    tell(place, report.run)
    return report.exit_code


def _backlog(place: Place, named: Path | None) -> Path:
    if named is not None:
        if not named.is_file():
            raise UsageError(f"there is no backlog {str(named)!r}", hint="check the path after --backlog")
        return _own(place, named)
    reader = Reader(place.database)
    started = [row.event for row in reader.rows(issue="") if row.event.get("kind") == "RunStarted"]
    known = [Path(event["backlog"]) for event in reversed(started) if event.get("backlog")]
    for path in (*known[:1], place.root / DEFAULT_BACKLOG):
        if path.is_file():
            return _own(place, path)
    raise MissingError("there is no backlog", hint="name one with --backlog FILE")


def _own(place: Place, path: Path) -> Path:
    """`path` itself, resolved. A repository must not make a file from elsewhere its backlog."""
    found, root = path.resolve(), place.root.resolve()
    if path.absolute().is_relative_to(place.root) and not found.is_relative_to(root):
        raise ConfigError(f"{path} is a symbolic link that leaves the repository", hint=f"--backlog {found}")
    return found


def _again(
    issues: tuple[str, ...],
    agent: str | None,
    parallel: int | None,
    budget_usd: float | None,
    config: Path | None,
) -> list[str]:
    """The options to give the process in the background."""
    words = [word for issue in issues for word in ("--issue", issue)]
    named = {"--agent": agent, "--parallel": parallel, "--budget-usd": budget_usd}
    words += [str(word) for pair in named.items() if pair[1] is not None for word in pair]
    return [*words, "--config", str(config.resolve())] if config else words


async def _work(order: Order, loaded: "Loaded") -> "tuple[RunReport, Grade | None]":
    from ironworks.app.factory import Options, open_factory
    from ironworks.cli.loading import install_wished
    from ironworks.cli.summary import freeze, frozen
    from ironworks.cli.table import View

    place = order.place
    with View(place.logs, quiet=order.quiet) as view:
        cord = _Cord(view)
        async with open_factory(place, loaded, Options(backlog=order.backlog)) as factory:
            cord.factory = factory
            issues = await asyncio.to_thread(factory.parts.forge.issues)
            await asyncio.to_thread(install_wished, issues, view.say)

            def watch(recorded: Any) -> None:
                view.apply(recorded.at.timestamp(), recorded.event.model_dump(mode="json"))

            report: RunReport = await factory.run(issues=list(order.issues) or None, watch=watch)
            pulls = report.pull_requests or tuple(await asyncio.to_thread(factory.parts.forge.pulls))
            step = suggestion(report.next, place)
            changes = {"pull_requests": pulls, "state_dir": str(place.state), "next": step}
            report = report.model_copy(update=changes)
            folder = place.logs / report.run
            if factory.retold:
                report = await asyncio.to_thread(frozen, report, folder)
            await asyncio.to_thread(freeze, report, folder)
            crash_point("run.after_freeze")
            grade = await _grade(factory, report, folder / "grade.json", view)
    return report, grade


async def _grade(factory: "Factory", report: "RunReport", path: Path, view: Any) -> "Grade | None":
    """The hidden suite, once, on what has landed; the report is frozen and cannot change any more."""
    from ironworks.cli.grade import kept, told
    from ironworks.cli.summary import write_whole

    landed = report.integration.commit
    if not factory.parts.settings.project.hidden_tests or not landed or report.stopped:
        return None
    grade = await asyncio.to_thread(kept, path, landed)
    if grade is None:
        view.say(f"the hidden suite grades {landed[:12]}")
        grade = await factory.grade_landed(landed)
        if grade is None:
            view.say(f"not graded; `ironworks grade {landed[:12]}` does it")
            return None
        await asyncio.to_thread(write_whole, path, grade.model_dump_json(indent=2))
    view.say(told(grade))
    return grade


class _Cord:
    """Ctrl-C, and a polite kill: the first stops cleanly, the second at once."""

    def __init__(self, view: Any) -> None:
        self.factory: Any = None
        self._pulls = 0
        self._view = view
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._pull)

    def _pull(self) -> None:
        self._pulls += 1
        if self.factory is None:
            # Nothing has started yet that could need a capture.
            if self._task is not None:
                self._task.cancel()
            return
        now = self._pulls > 1
        self._view.say("stopping now" if now else "stopping; once more to stop at once")
        self.factory.stop(now=now)
