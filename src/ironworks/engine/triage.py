"""Triage: is this issue buildable, and what will done mean?"""

from ironworks.core.handoffs import TriageReport
from ironworks.core.ports import Sandbox
from ironworks.engine.consult import Question, consult
from ironworks.engine.line import Line


async def triage(line: Line) -> TriageReport:
    """A report by the triage agent; the one already given when a person sent the issue back to the queue."""
    known = await line.floor.recall(f"{line.memory}/triage")
    if known is not None:
        return TriageReport.model_validate(known)

    async def ready(_: Sandbox) -> None:
        """The base snapshot is all it needs."""

    name = line.sandbox("triage", line.generation)
    exchange = await consult(
        line,
        Question(
            stage="triage",
            label=f"triage-{line.generation}",
            context=await line.context(siblings=line.floor.titles),
            input={"answers": list(line.answers)},
            sandbox=name,
            ready=ready,
        ),
    )
    await line.floor.parts.backend.destroy(name)
    report = TriageReport.model_validate(exchange.handoff)
    report = _with_wishes(line, report)
    if report.decision == "build":
        await line.floor.remember(f"{line.memory}/triage", report)
    return report


def _with_wishes(line: Line, report: TriageReport) -> TriageReport:
    """What the entry's own front matter says goes before what an agent thinks."""
    wishes = line.issue.wishes
    return report.model_copy(
        update={"kind": wishes.kind or report.kind, "scope": wishes.scope or report.scope},
    )
