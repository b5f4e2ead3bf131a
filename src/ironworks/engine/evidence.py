"""What a pull request says for itself: what ran, where, and what was found."""

from ironworks.core.handoffs import TriageReport, Verification
from ironworks.core.models import Issue
from ironworks.engine.review import Judgement


def pull_body(
    issue: Issue, triage: TriageReport, verification: Verification, judgement: Judgement, cost_usd: float
) -> str:
    """Markdown. Titles and claims are a stranger's words: shown as quotations, never as structure."""
    passed = sum(outcome == "passed" for outcome in verification.tests.values())
    lines = [f"Closes {issue.id}: {_one_line(issue.title)} ({issue.source})", "", "## Acceptance", ""]
    lines += [f"- {_one_line(item)}" for item in triage.acceptance] or ["- none was named"]
    lines += ["", "## Verification", ""]
    judged, onto = verification.commit[:12], verification.onto[:12]
    lines.append(f"- verdict **{verification.verdict}** on {judged}, onto {onto}")
    tests, runs = len(verification.tests), verification.suite_runs
    lines.append(f"- {passed} of {tests} tests passed, {runs} suite runs")
    if verification.baseline is not None:
        lines.append(f"- failing on base before: {_listed(verification.baseline.failing)}")
    proof = verification.fail_to_pass
    proven = _listed(proof.proven) if proof.proven else f"waived: {proof.waived}"
    lines.append(f"- fail on base, pass here: {proven}")
    lines += [
        f"- {found.code}: {_one_line(found.message)} {found.path}".rstrip() for found in verification.findings
    ]
    lines += ["", "## Review", "", f"- verdict **{judgement.report.verdict}**"]
    lines += [f"- checked: {_one_line(item)}" for item in judgement.report.checked]
    lines += [f"- {finding.severity}: {_one_line(finding.claim)}" for finding in judgement.report.findings]
    lines += ["", f"Cost so far: ${cost_usd:.4f}"]
    return "\n".join(lines) + "\n"


def integration_body(closes: list[tuple[str, str]]) -> str:
    """Markdown of the integration branch's own pull request: what its merge closes."""
    lines = ["Every change below is merged here, and the suite passed after each.", ""]
    lines += [f"- closes {issue}: {_one_line(title)}" for issue, title in closes]
    return "\n".join(lines) + "\n"


def _listed(names: tuple[str, ...], limit: int = 20) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:limit]) or "none"
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
