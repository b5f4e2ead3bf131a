"""Many factories, few issues, random kills: nobody works on what somebody else has."""

import multiprocessing
import os
import random
import signal
import time
from collections import defaultdict
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from ironworks.core.clock import SystemClock
from ironworks.core.errors import FencedError
from ironworks.core.models import Claim
from ironworks.forge.claim import Claims
from ironworks.git.depot import Depot

SPAWN = multiprocessing.get_context("spawn")
LEASE_S = 3.0
STEPS = 3


class Journal:
    """An append-only file: the order of its lines is the order in which side effects happened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, claim: Claim) -> None:
        os.write(self._file, f"{kind} {claim.subject} {claim.epoch} {claim.owner}\n".encode())

    def lines(self) -> list[tuple[str, str, int, str]]:
        found = (line.split(" ") for line in self._path.read_text().splitlines())
        return [(kind, issue, int(epoch), owner) for kind, issue, epoch, owner in found]

    def done(self) -> set[str]:
        return {issue for kind, issue, _, _ in self.lines() if kind == "done"}


def work(folder: Path, user: Path, owner: str, issues: list[str], seed: int) -> None:
    """A factory: claims issues in an order of its own until all are done. Some of its stages oversleep."""
    claims = Claims(Depot(folder / owner, user), owner=owner, run="r", clock=SystemClock(), lease_s=LEASE_S)
    journal = Journal(folder / "journal")
    chance = random.Random(seed)
    while left := sorted(set(issues) - journal.done()):
        claim = claims.acquire(chance.choice(left))
        if claim is None:
            time.sleep(chance.uniform(0, 0.1))
            continue
        try:
            build(claims, claim, journal, chance)
        except FencedError:
            journal.write("lost", claim)
        claims.release(claim)


def build(claims: Claims, claim: Claim, journal: Journal, chance: random.Random) -> None:
    """A few side effects and the last one, unless somebody did it before we had the claim."""
    if claim.subject in journal.done():
        return
    for _ in range(STEPS):
        overslept = chance.random() < 0.1
        time.sleep(LEASE_S * 1.6 if overslept else chance.uniform(0, 0.5))
        if not overslept:
            claims.renew(claim)
        claims.fence(claim)
        journal.write("effect", claim)
    claims.fence(claim)
    journal.write("done", claim)


class Fleet:
    """Workers that are killed, and started again: as the same factory, or as a new one."""

    def __init__(self, folder: Path, user: Path, issues: list[str], size: int, seed: int) -> None:
        self._folder = folder
        self._user = user
        self._issues = issues
        self.chance = random.Random(seed)
        self.workers: dict[str, SpawnProcess] = {}
        self.killed = 0
        for number in range(size):
            self.start(f"factory{number}")

    def start(self, owner: str) -> None:
        args = (self._folder, self._user, owner, self._issues, self.chance.randrange(2**32))
        self.workers[owner] = SPAWN.Process(target=work, args=args)
        self.workers[owner].start()

    def kill_one(self) -> None:
        owner = self.chance.choice(sorted(self.workers))
        killed = self.workers.pop(owner)
        killed.kill()
        killed.join(30)
        self.killed += killed.exitcode == -signal.SIGKILL
        self.start(owner if self.chance.random() < 0.5 else f"{owner}x")

    def end(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.join(30)


def soak(
    folder: Path, user: Path, *, size: int, count: int, kills: int, seed: int, deadline_s: float
) -> None:
    issues = [f"issue-{number}" for number in range(count)]
    journal = Journal(folder / "journal")
    fleet = Fleet(folder, user, issues, size, seed)
    deadline = time.monotonic() + deadline_s
    try:
        for _ in range(kills):
            time.sleep(fleet.chance.uniform(0.2, 1.0))
            fleet.kill_one()
        while journal.done() != set(issues) and time.monotonic() < deadline:
            time.sleep(0.1)
        for worker in fleet.workers.values():
            worker.join(max(0.0, deadline - time.monotonic()))
        assert {worker.exitcode for worker in fleet.workers.values()} == {0}
    finally:
        fleet.end()
    lines = journal.lines()
    assert fleet.killed > kills / 2, "most must die while they work"
    # Whether a kill left a claim for another to lose is chance; that work was done is not.
    assert {"effect", "done"} <= {kind for kind, *_ in lines} <= {"effect", "lost", "done"}
    assert sorted(issue for kind, issue, _, _ in lines if kind == "done") == sorted(issues)
    assert violations(lines) == []


def violations(lines: list[tuple[str, str, int, str]]) -> list[str]:
    """Side effects of a claim that somebody else had already taken, or on an issue that was finished."""
    found = []
    newest: defaultdict[str, int] = defaultdict(int)
    owners: dict[tuple[str, int], str] = {}
    done: set[str] = set()
    for line in lines:
        kind, issue, epoch, owner = line
        if kind == "lost":
            continue
        if epoch < newest[issue] or owners.setdefault((issue, epoch), owner) != owner or issue in done:
            found.append(str(line))
        newest[issue] = epoch
        if kind == "done":
            done.add(issue)
    return found


def test_the_judge_sees_what_must_not_happen() -> None:
    first, second = ("effect", "a", 1, "x"), ("effect", "a", 2, "y")
    done = ("done", "a", 2, "y")
    assert violations([first, second, ("lost", "a", 1, "x"), done, ("effect", "b", 1, "x")]) == []
    assert violations([second, first]) == [str(first)]
    assert violations([first, ("effect", "a", 1, "y")]) == [str(("effect", "a", 1, "y"))]
    assert violations([done, done]) == [str(done)]


@pytest.mark.slow
@pytest.mark.spec("CL-10")
@pytest.mark.timeout(200)
def test_no_issue_is_worked_twice_by_four_factories_that_get_killed(tmp_path: Path, user: Path) -> None:
    soak(tmp_path, user, size=4, count=8, kills=8, seed=1, deadline_s=150)


@pytest.mark.soak
@pytest.mark.spec("CL-10")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_issue_is_worked_twice_by_eight_factories_that_get_killed(
    tmp_path: Path, user: Path, seed: int
) -> None:
    soak(tmp_path, user, size=8, count=50, kills=80, seed=seed, deadline_s=900)
