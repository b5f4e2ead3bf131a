"""Verify: a separate sandbox, without a model, says what the work really does."""

import time

from ironworks.core.events import StageFinished, StageStarted
from ironworks.core.handoffs import Verification
from ironworks.core.models import Finding
from ironworks.engine.consult import attempt_number
from ironworks.engine.line import Line
from ironworks.engine.work import Brief, Change


async def prove(line: Line, brief: Brief, change: Change, round: int) -> Verification:
    """The verdict on one round of work, merged onto the base branch's tip."""
    floor = line.floor
    number = await attempt_number(line, "verify", f"verify-{line.generation}-{round}", 1)
    started = StageStarted(run=floor.run, issue=line.id, stage="verify", attempt=number)
    await line.record(started, "verify", round)
    began = time.monotonic()
    verification = await floor.bench.verifier.verify(
        change.commit,
        issue=line.issue,
        kind=brief.triage.kind,
        scope=brief.triage.scope,
        name=line.sandbox("verify", line.generation, round),
    )
    verification = verification.model_copy(
        update={"findings": (*verification.findings, *_against_the_report(change, verification))}
    )
    took = time.monotonic() - began
    finished = StageFinished(
        run=floor.run,
        issue=line.id,
        stage="verify",
        attempt=number,
        outcome=verification.verdict,
        duration_s=took,
        suite_s=min(verification.suite_s, took),
        cpu_s=verification.cpu_s,
        handoff=verification.model_dump(mode="json"),
    )
    await line.record(finished, "verify", round)
    return verification


def _against_the_report(change: Change, verification: Verification) -> list[Finding]:
    """Where the worker's words differ from what was found. Shown to people; no verdict rests on words."""
    findings: list[Finding] = []
    codes = {finding.code for finding in verification.findings}
    if change.report.tests_pass and codes & {"regression", "failing-test", "base-test"}:
        findings.append(
            Finding(
                code="claim-contradicted",
                message="the worker said that the tests pass; they do not",
                fatal=False,
            )
        )
    if change.ghost:
        findings.append(
            Finding(
                code="ghost-commit", message="the worker left work uncommitted; it was captured", fatal=False
            )
        )
    findings += [Finding(code="capture", message=note, fatal=False) for note in change.notes]
    return findings
