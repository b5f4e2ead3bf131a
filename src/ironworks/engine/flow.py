"""The pipeline of one issue, readable top to bottom: from claimed to landed, or to a rest with a way out."""

from ironworks.core.handoffs import Integration, TriageReport, Verification
from ironworks.core.models import PullRequest
from ironworks.core.policy import after_triage
from ironworks.engine.integrate import integrate
from ironworks.engine.line import Line, Parked
from ironworks.engine.propose import propose
from ironworks.engine.prove import prove
from ironworks.engine.review import Judgement, review
from ironworks.engine.triage import triage
from ironworks.engine.work import Brief, Change, work


async def flow(line: Line) -> None:
    """Move one issue as far as it goes. Every `line.step` is recorded: a restart resumes after the last one.

    Raises Parked wherever the issue must rest until a person does something.
    """
    report = await line.step("triage", TriageReport, triage, line)
    decision = after_triage(report)
    if decision == "ask":
        await line.ask(report)
        return
    if decision == "reject":
        await line.reject(report)
        return

    brief = Brief(triage=report)
    for round in range(1, line.settings.limits.max_rounds + 1):
        change = await line.step(f"work-{round}", Change, work, line, brief, round)
        verification = await line.step(f"verify-{round}", Verification, prove, line, brief, change, round)
        brief = brief.after(change, verification)
        if verification.verdict != "passed":
            continue
        judgement = await line.step(f"review-{round}", Judgement, review, line, brief, round)
        if not judgement.blocking:
            break
        brief = brief.told(judgement.blocking)
    else:
        raise Parked("attempts", brief.trouble)

    pull = await line.step("propose", PullRequest, propose, line, brief, judgement)
    line.leave_floor()
    integration = await line.step("integrate", Integration, integrate, line, pull, verification)
    await line.land(integration)
