"""Work: an agent changes the tree; what it leaves there, committed or not, becomes a commit in the depot."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ironworks.agents.desk import CheckResult
from ironworks.agents.prompt import PromptContext
from ironworks.core.crash import crash_point
from ironworks.core.events import WorkCaptured
from ironworks.core.excerpt import excerpt
from ironworks.core.handoffs import TriageReport, Verification, WorkReport
from ironworks.core.models import Model, Sha
from ironworks.core.ports import Sandbox
from ironworks.engine.consult import Exchange, Question, consult
from ironworks.engine.floor import Station
from ironworks.engine.line import Line, Parked
from ironworks.sandbox.checkout import capture, unlock

TREE = """\
export GIT_INDEX_FILE=/tmp/ironworks-index
cp .git/index "$GIT_INDEX_FILE" && git add -A && git write-tree"""
"""Names what is on the worker's disk without touching its own index."""


class Change(Model):
    """What a round of work came to: the report, and the commit that holds all of the tree."""

    report: WorkReport
    commit: Sha
    ghost: bool = False
    """The agent had not committed everything itself."""
    notes: tuple[str, ...] = ()
    session: str | None = None


@dataclass(frozen=True)
class Brief:
    """All a worker is told besides the issue; grows from round to round."""

    triage: TriageReport
    change: Change | None = None
    verification: Verification | None = None
    demands: tuple[str, ...] = ()

    def after(self, change: Change, verification: Verification) -> "Brief":
        demands = () if verification.verdict == "passed" else shortcomings(verification)
        return replace(self, change=change, verification=verification, demands=demands)

    def told(self, demands: Sequence[str]) -> "Brief":
        return replace(self, demands=tuple(demands))

    @property
    def trouble(self) -> str:
        return "; ".join(self.demands)[:4000]


def shortcomings(verification: Verification) -> tuple[str, ...]:
    """What the worker must put right, in words."""
    fatal = [finding for finding in verification.findings if finding.fatal]
    wanted = [
        f"{f.message} {f.path or f.test}".strip() + (f"\n{f.detail}" if f.detail else "") for f in fatal
    ]
    return tuple(dict.fromkeys(wanted)) or (f"the verification was {verification.verdict}",)


async def work(line: Line, brief: Brief, round: int) -> Change:
    """One round. The sandbox and the agent's session are the same in every round of an issue.

    Raises Parked when the agent cannot go on; what it did is captured all the same.
    """
    fact = line.key("work", round)
    known = await line.floor.recall(f"{fact}/change")
    if known is not None:
        return Change.model_validate(known)
    failing = (await line.floor.baseline()).failing
    earlier = await _earlier(line)
    fresh = not await line.floor.parts.backend.has_disk(line.work_sandbox)
    captures: list[Change] = []

    async def ready(sandbox: Sandbox) -> None:
        await unlock(sandbox)
        if earlier is not None and fresh and not captures:
            await line.floor.bench.place(sandbox, earlier.commit)

    async def finish(station: Station, exchange: Exchange) -> None:
        crash_point("work.after_agent")
        captures.append(await _capture(line, station, exchange, round))
        crash_point("work.after_capture")

    await consult(
        line,
        Question(
            stage="work",
            label=f"work-{line.generation}-{round}",
            context=await _context(line, brief, failing, round, on_own_disk=not fresh),
            input=_input(line, brief, failing),
            sandbox=line.work_sandbox,
            ready=ready,
            finish=finish,
            check=lambda station: _check(line, station, failing),
            session=brief.change.session if brief.change else (earlier.session if earlier else None),
        ),
    )
    change = captures[-1]
    report = change.report
    if report.status != "done":
        raise Parked("needs_input", report.notes or report.summary)
    await line.floor.remember(f"{fact}/change", change)
    return change


async def _earlier(line: Line) -> Change | None:
    """What the last attempt on this text of the issue left, if it still fits the base commit."""
    known = await line.floor.recall(f"{line.memory}/change")
    if known is None:
        return None
    change = Change.model_validate(known)
    base = line.floor.bench.base.commit
    fits = change.commit != base and await line.is_ancestor(base, change.commit)
    return change if fits else None


async def _context(
    line: Line, brief: Brief, failing: Sequence[str], round: int, *, on_own_disk: bool
) -> PromptContext:
    earlier = brief.change or await _earlier(line)
    session = earlier.session if earlier else None
    ghost = "an earlier attempt was interrupted; what it had done is in the tree" if on_own_disk else ""
    return await line.context(
        round,
        resumed=session is not None and on_own_disk,
        acceptance=brief.triage.acceptance,
        known_failing=tuple(failing),
        scope=brief.triage.scope or line.settings.project.scope,
        findings=brief.demands,
        ghost="\n".join(_left(earlier)) if earlier else ghost,
    )


def _left(change: Change) -> list[str]:
    said = "part of it not committed yet" if change.ghost else "all of it committed"
    return [f"an earlier attempt's work is in the tree, {said}", *change.notes]


async def _capture(line: Line, station: Station, exchange: Exchange, round: int) -> Change:
    base, depot = line.floor.bench.base, line.floor.parts.depot
    ref = f"refs/attempts/{line.id}/{line.issue.digest[:16]}/{line.generation}.{round}"
    taken = await capture(
        station.sandbox, depot, base=base.commit, ref=ref, title=line.issue.title, built=base.built
    )
    report = WorkReport(status="blocked", summary=excerpt(exchange.detail, 20_000))
    if exchange.handoff is not None:
        report = WorkReport.model_validate(exchange.handoff)
    change = Change(
        report=report,
        commit=taken.commit,
        ghost=taken.ghost,
        notes=taken.notes,
        session=exchange.session,
    )
    await line.floor.remember(f"{line.memory}/change", change)
    event = WorkCaptured(
        run=line.floor.run,
        issue=line.id,
        attempt=round,
        commit=taken.commit,
        tree=taken.tree,
        ghost=taken.ghost,
    )
    await line.record(event, round, taken.commit)
    return change


async def _check(line: Line, station: Station, failing: Sequence[str]) -> CheckResult:
    """`iw check`: the suites in the worker's own sandbox, and only what is newly failing."""
    run = await line.floor.bench.suites.run_in(station.sandbox)
    if run.problem:
        text = f"the suite could not be used: {run.problem}\n{run.log[-3000:]}"
        return CheckResult(text=text, fingerprint="", ok=False)
    bad = sorted(test for test, outcome in run.tests.items() if outcome in {"failed", "error"})
    new = [test for test in bad if test not in set(failing)]
    lines = [
        f"{len(run.tests)} tests ran, {len(new)} newly failing, {len(bad) - len(new)} failed before you came"
    ]
    lines += [f"FAIL {test}\n{excerpt(run.messages.get(test, ''), 1500)}" for test in new]
    tree = await station.sandbox.exec(["sh", "-c", TREE], timeout_s=60)
    seen = hashlib.sha256(b"\0".join([tree.stdout, *(test.encode() for test in new)])).hexdigest()
    return CheckResult(text="\n".join(lines), fingerprint=seen if new else "", ok=not new)


def _input(line: Line, brief: Brief, failing: Sequence[str]) -> dict[str, object]:
    return {
        "acceptance": list(brief.triage.acceptance),
        "scope": list(brief.triage.scope),
        "baseline": list(failing),
        "findings": list(brief.demands),
        "answers": list(line.answers),
    }
