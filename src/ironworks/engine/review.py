"""Review: another agent reads the proven change; what it can reproduce blocks, what it cannot is shown."""

from ironworks.core.crash import crash_point
from ironworks.core.events import FindingTried
from ironworks.core.handoffs import ReviewReport
from ironworks.core.models import Finding, Model
from ironworks.core.policy import blocking
from ironworks.core.ports import Sandbox
from ironworks.engine.consult import Question, consult
from ironworks.engine.line import Line
from ironworks.engine.work import Brief


class Judgement(Model):
    """The report, what of it was reproduced, and what must therefore be reworked."""

    report: ReviewReport
    reproduced: tuple[Finding, ...] = ()
    blocking: tuple[str, ...] = ()


async def review(line: Line, brief: Brief, round: int) -> Judgement:
    """A judgement on a change that verification has passed. A reviewer that fails parks, never approves."""
    verification, floor = brief.verification, line.floor
    assert verification is not None
    diff = await line.diff(verification.onto, verification.commit)

    async def ready(sandbox: Sandbox) -> None:
        await floor.bench.place(sandbox, verification.commit)

    name = line.sandbox("review", line.generation, round)
    exchange = await consult(
        line,
        Question(
            stage="review",
            label=f"review-{line.generation}-{round}",
            context=await line.context(
                round, acceptance=brief.triage.acceptance, diff=diff, verification=verification.to_json()
            ),
            input={
                "diff": diff,
                "verification": verification.model_dump(mode="json"),
                "acceptance": list(brief.triage.acceptance),
            },
            sandbox=name,
            ready=ready,
        ),
    )
    crash_point("review.after_agent")
    await floor.parts.backend.destroy(name)
    report = ReviewReport.model_validate(exchange.handoff)
    reproduced = await floor.bench.verifier.reproduce(
        verification.commit, report, name=line.sandbox("reproduce", line.generation, round)
    )
    for number, finding in enumerate(reproduced):
        tried = FindingTried(
            run=floor.run,
            issue=line.id,
            attempt=round,
            reproduced=finding.fatal,
            path=finding.path,
            claim=finding.message[:2000],
        )
        await line.record(tried, round, number)
    return Judgement(
        report=report, reproduced=tuple(reproduced), blocking=tuple(blocking(report, reproduced))
    )
