"""What the demo says: before, while it happens, and in the end."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from ironworks.cli.grade import told as graded
from ironworks.cli.output import dollars, say, short
from ironworks.cli.summary import as_text
from ironworks.core import events as ev
from ironworks.core.events import Event
from ironworks.core.report import Grade, RunReport

SCRIPTED = """\
Ten issues of Tiny Links, a URL shortener with six failing checks. Two factories start on them at the same
moment. Real: git, sandboxes, gateway, budgets, test suites, verification, merging. Played: the model, by a
script on this machine that answers from what it is shown. No key is needed, nothing is spent; costs are by
list price.
"""
CHAOTIC = """\
Six hostile workers are among them: a spender, a sleeper, a fork bomb, a spy, a liar and a flood. What they do
is caught, the others land, and the exit code is 1.
"""
LIVE = """\
Ten issues of Tiny Links, a URL shortener with six failing checks, and a real model: this costs money, up to
the cap.
"""
WIDTH = 34
EVERYWHERE = frozenset({"known-failing", "claimed-elsewhere"})


def introduce(*, live: bool, chaos: bool) -> None:
    say(LIVE if live else SCRIPTED + (CHAOTIC if chaos else ""))


class Narrator:
    """Tells each event worth telling in a line: seconds, factory, issue, what."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._titles: dict[str, str] = {}
        self._began_s: float | None = None
        self._told: set[str] = set()

    def tell(self, factory: int, at_s: float, event: Event) -> None:
        """`at_s`: seconds since 1970."""
        if self._began_s is None:
            self._began_s = at_s
        if isinstance(event, ev.IssueQueued):
            self._titles[event.issue] = event.snapshot.title
        title = self._titles.get(event.issue, "")
        for line in () if self._quiet else [*self._caught(event), _plain(event)]:
            if line:
                say(f"{at_s - self._began_s:5.1f}s  {factory}  {short(title, WIDTH):{WIDTH}}  {line}")

    def _caught(self, event: Event) -> Iterator[str]:
        """One line for each kind of catch; what happens to every issue is told once."""
        from ironworks.engine.catch import catches

        for code, alike in groupby(catches(event), key=lambda catch: catch.code):
            first, *more = alike
            if code not in self._told:
                yield f"! {first.by}: {first.what}" + (f" (and {len(more)} more)" if more else "")
            if code in EVERYWHERE:
                self._told.add(code)


def _plain(event: Event) -> str:
    if isinstance(event, ev.StageFinished):
        return _stage(event)
    if isinstance(event, ev.BaseSnapshotMade):
        if event.reused:
            return f"base snapshot: {event.reused} brought up to date, nothing installed anew"
        return "base snapshot: the clone with its dependencies, every sandbox boots from it"
    if isinstance(event, ev.BaselineTaken):
        return f"baseline: {event.passed} tests pass, {len(event.failing)} fail before anybody worked"
    if isinstance(event, ev.IssueClaimed):
        return "claimed"
    if isinstance(event, ev.PullRequestOpened):
        return "pull request opened"
    if isinstance(event, ev.IssueLanded):
        return "landed on the integration branch, suite green"
    return ""


def _stage(event: ev.StageFinished) -> str:
    """Of work only that it is over: what it is worth, the verifier says."""
    if event.stage == "verify":
        proven = event.handoff.get("fail_to_pass", {}).get("proven", ())
        new = "1 new test fails" if len(proven) == 1 else f"{len(proven)} new tests fail"
        proof = f"; {new} without the change" if proven else ""
        return f"verified: {event.outcome}{proof if event.outcome == 'passed' else ''}"
    if event.stage == "review":
        return f"reviewed: {event.outcome.replace('_', ' ')}"
    said = event.stage == "work" and "status" in event.handoff
    return f"the worker says: {event.outcome}" if said else ""


def conclude(report: RunReport, grades: tuple[Grade, ...], merged: str) -> None:
    """The report, the human's part, the grades."""
    say("\n" + as_text(report.model_copy(update={"next": ""})).removesuffix("\n\nnext: ") + "\n")
    if merged:
        say(f"The human's part: `ironworks pr merge integration` moved main to {merged[:12]}.")
    for when, grade in zip(("before", "after"), grades, strict=False):
        say(f"{when}: {graded(grade).splitlines()[0]}")


def at_list_price(report: RunReport) -> None:
    say(f"A real model would have cost {dollars(report.cost_usd)} by list price.")


def unlike(differences: list[str]) -> None:
    """What a real model did differently."""
    say("\nUnlike the script:\n" + "\n".join(f"  {line}" for line in differences))


def point_on(folder: Path | None) -> None:
    """What to type next. `folder`: where all is kept, if it is."""
    if folder:
        say(f"\nnext: git -C {shlex.quote(str(folder / 'tiny-links'))} log --graph --oneline main")
        return
    say("\nnext, in a repository of your own: ironworks init")
    if found := off_path():
        say(f'  after: export PATH="{found}:$PATH"')


def off_path() -> str:
    """The folder of the program `ironworks` when a shell would not find it there; empty when it would."""
    mine = Path(sys.executable).parent
    return "" if shutil.which("ironworks") or not (mine / "ironworks").is_file() else str(mine)
