"""Propose: push the proven commit to its branch and open the pull request that carries the evidence."""

import asyncio

from ironworks.core.crash import crash_point
from ironworks.core.errors import ConflictError
from ironworks.core.events import PullRequestOpened
from ironworks.core.models import PullRequest
from ironworks.core.policy import branch_name
from ironworks.engine.evidence import pull_body
from ironworks.engine.line import Line
from ironworks.engine.review import Judgement
from ironworks.engine.work import Brief


async def propose(line: Line, brief: Brief, judgement: Judgement) -> PullRequest:
    """The open pull request of an issue that both verifier and reviewer signed. Idempotent."""
    verification = brief.verification
    assert verification is not None and verification.verdict == "passed" and not judgement.blocking
    branch = branch_name(line.settings.branch.template, line.id)
    await push_branch(line, branch, verification.commit)
    crash_point("propose.after_branch")
    pull = PullRequest(
        id=line.id,
        title=line.issue.title,
        body=pull_body(line.issue, brief.triage, verification, judgement, await line.spent_usd()),
        branch=branch,
        base=line.floor.base_branch,
        head=verification.commit,
        closes=(line.id,),
        depends_on=tuple(line.issue.wishes.depends_on),
        run=line.floor.run,
    )
    await put_pull(line, pull)
    await line.record(PullRequestOpened(run=line.floor.run, issue=line.id, branch=branch, commit=pull.head))
    return pull


async def push_branch(line: Line, branch: str, commit: str) -> None:
    """Point `branch` in the repository at `commit`, wherever it was; ConflictError if it keeps moving.

    What nobody of us has put there, such as a person's commits, stays reachable below `refs/ironworks/kept/`.
    """
    depot, ref = line.floor.parts.depot, f"refs/heads/{branch}"
    pull = await asyncio.to_thread(line.floor.parts.forge.pull, line.id)
    for _ in range(5):
        await line.fence()
        now = await asyncio.to_thread(depot.remote_ref, ref)
        if now is not None and now not in {commit, pull and pull.head}:
            await asyncio.to_thread(depot.sync, branch)
            await asyncio.to_thread(depot.push, f"refs/ironworks/kept/{line.id}/{now}", now, expected=None)
        if now == commit or await asyncio.to_thread(depot.push, ref, commit, expected=now):
            return
    raise ConflictError(f"{branch} keeps being changed by somebody else")


async def put_pull(line: Line, pull: PullRequest) -> None:
    """Create or replace the record of `pull`; ConflictError if it keeps moving."""
    forge = line.floor.parts.forge
    for _ in range(5):
        await line.fence()
        now = await asyncio.to_thread(forge.pull, pull.id)
        if now == pull or await asyncio.to_thread(forge.put_pull, pull, expected=now):
            return
    raise ConflictError(f"pull request {pull.id} keeps being changed by somebody else")
