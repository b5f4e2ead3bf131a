"""Claims between factories that share nothing but a repository."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.forge.conftest import Git, HandClock

from ironworks.core import crash
from ironworks.core.errors import FencedError, GitError, RefusedError
from ironworks.core.models import Claim
from ironworks.forge.claim import Claims
from ironworks.git.depot import Depot

LEASE_S = 90.0
GRACE_S = 30.0
NewClaims = Callable[..., Claims]


@pytest.fixture
def factory(new_depot: Callable[[str], Depot], clock: HandClock) -> NewClaims:
    def make(owner: str, run: str = "r", clock: HandClock = clock) -> Claims:
        return Claims(new_depot(owner), owner=owner, run=run, clock=clock, lease_s=LEASE_S)

    return make


@pytest.fixture
def mine(factory: NewClaims) -> Claims:
    return factory("me")


@pytest.fixture
def theirs(factory: NewClaims) -> Claims:
    return factory("them")


def won(claims: Claims, subject: str = "a") -> Claim:
    claim = claims.acquire(subject)
    assert claim is not None
    return claim


@pytest.mark.spec("CL-1")
def test_the_first_wins_and_the_second_does_not(mine: Claims, theirs: Claims, clock: HandClock) -> None:
    claim = won(mine)
    assert (claim.subject, claim.owner, claim.run, claim.epoch) == ("a", "me", "r", 1)
    assert (claim.expires_at - clock.now()).total_seconds() == LEASE_S
    assert theirs.acquire("a") is None
    assert mine.holds(claim)
    assert not mine.stolen(claim)
    assert theirs.holder("a") == mine.holder("a") == claim
    assert theirs.acquire("b") is not None


@pytest.mark.spec("CL-1")
def test_of_many_at_once_exactly_one_wins(factory: NewClaims) -> None:
    everybody = [factory(f"owner{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        claims = [claim for claim in pool.map(lambda one: one.acquire("a"), everybody) if claim]
    assert len(claims) == 1


@pytest.mark.spec("CL-2")
def test_an_expired_claim_is_taken_over_with_the_next_epoch_and_its_holder_knows(
    mine: Claims, theirs: Claims, clock: HandClock
) -> None:
    claim = won(mine)
    clock.pass_s(LEASE_S + GRACE_S)
    assert theirs.holder("a") is None
    taken = won(theirs)
    assert taken.epoch == 2
    assert theirs.stolen(taken)
    assert not mine.holds(claim)
    assert mine.renew(claim) is None
    with pytest.raises(FencedError):
        mine.fence(claim)
    mine.release(claim)
    assert theirs.holds(taken)
    renewed = theirs.renew(taken)
    assert renewed is not None
    assert theirs.stolen(renewed)


@pytest.mark.spec("CL-3")
def test_the_holder_stops_before_anybody_else_may_start(
    mine: Claims, theirs: Claims, clock: HandClock
) -> None:
    claim = won(mine)
    clock.pass_s(LEASE_S - 1)
    assert mine.holds(claim)
    clock.pass_s(1)
    assert not mine.holds(claim)
    assert theirs.acquire("a") is None
    clock.pass_s(GRACE_S - 1)
    assert theirs.acquire("a") is None
    clock.pass_s(1)
    assert theirs.acquire("a") is not None


@pytest.mark.spec("CL-3")
@pytest.mark.parametrize("ahead_s", [-GRACE_S + 1, GRACE_S - 1])
def test_clocks_may_differ_by_less_than_a_third_of_the_lease(factory: NewClaims, ahead_s: float) -> None:
    ours, others = HandClock(), HandClock()
    others.pass_s(ahead_s)
    mine, theirs = factory("me", clock=ours), factory("them", clock=others)
    claim = won(mine)
    while theirs.acquire("a") is None:
        ours.pass_s(1)
        others.pass_s(1)
    assert not mine.holds(claim)


@pytest.mark.spec("CL-4")
def test_renewing_keeps_a_claim_for_ever(mine: Claims, theirs: Claims, clock: HandClock) -> None:
    claim = won(mine)
    for _ in range(4):
        clock.pass_s(LEASE_S * 2 / 3)
        renewed = mine.renew(claim)
        assert renewed is not None
        assert renewed.commit != claim.commit
        assert renewed.epoch == 1
        claim = renewed
        assert theirs.acquire("a") is None
        assert mine.holds(claim)


@pytest.mark.spec("CL-4")
def test_a_late_renewal_is_good_as_long_as_nobody_took_the_claim(mine: Claims, clock: HandClock) -> None:
    claim = won(mine)
    clock.pass_s(LEASE_S * 5)
    renewed = mine.renew(claim)
    assert renewed is not None
    assert mine.holds(renewed)


@pytest.mark.spec("CL-4")
def test_whoever_still_has_the_claim_from_before_a_renewal_holds_it_too(
    mine: Claims, clock: HandClock
) -> None:
    old = won(mine)
    mine.renew(old)
    assert mine.holds(old)
    assert mine.renew(old) is not None
    clock.pass_s(LEASE_S + GRACE_S)
    assert not mine.holds(old)


@pytest.mark.spec("CL-4")
def test_heartbeats_of_two_threads_do_not_lose_the_claim(mine: Claims) -> None:
    claim = won(mine)
    with ThreadPoolExecutor(3) as pool:
        renewed = list(pool.map(lambda _: mine.renew(claim), range(9)))
    assert None not in renewed
    assert mine.holds(claim)


@pytest.mark.spec("CL-5")
def test_a_released_claim_is_free_and_its_epoch_goes_on(mine: Claims, theirs: Claims) -> None:
    claim = won(mine)
    mine.renew(claim)
    mine.release(claim)
    mine.release(claim)
    assert not mine.holds(claim)
    assert mine.renew(claim) is None
    assert mine.holder("a") is None
    taken = won(theirs)
    assert taken.epoch == 2
    assert not theirs.stolen(taken)
    mine.release(claim)
    assert theirs.holds(taken)


@pytest.mark.spec("CL-6")
@pytest.mark.parametrize("asleep_s", [0, LEASE_S + 1, LEASE_S * 10])
def test_a_restart_of_the_same_run_gets_its_claim_back(
    factory: NewClaims, theirs: Claims, clock: HandClock, asleep_s: float
) -> None:
    claim = won(factory("me"))
    clock.pass_s(asleep_s)
    again = won(factory("me"))
    assert (again.epoch, again.owner) == (1, claim.owner)
    assert factory("me").holds(again)
    assert theirs.acquire("a") is None


@pytest.mark.spec("CL-6")
def test_the_next_run_of_the_same_owner_takes_over_at_once(factory: NewClaims) -> None:
    first = won(factory("me", "first"))
    assert won(factory("me", "second")).epoch == 2
    assert not factory("me", "first").holds(first)


@pytest.mark.spec("CL-7")
@pytest.mark.parametrize(
    "message",
    [
        "",
        "nothing like a claim",
        "{",
        "[" * 100_000,
        '{"subject": "a"}',
        json.dumps(
            {"subject": "b", "owner": "x", "run": "r", "epoch": 1, "expires_at": "2999-01-01T00:00:00Z"}
        ),
        json.dumps(
            {"subject": "a", "owner": "x", "run": "r", "epoch": 0, "expires_at": "2999-01-01T00:00:00Z"}
        ),
        json.dumps(
            {"subject": "a", "owner": "x", "run": "r", "epoch": 1, "expires_at": "2999-01-01T00:00:00"}
        ),
        json.dumps({"subject": "a", "owner": "x", "run": "r", "epoch": 1, "expires_at": "never"}),
    ],
)
def test_rubbish_in_place_of_a_claim_is_no_claim(mine: Claims, git: Git, message: str) -> None:
    commit = git("commit-tree", "HEAD^{tree}", "-F", "-", stdin=message.encode())
    git("update-ref", "refs/ironworks/claims/a", commit)
    assert mine.holder("a") is None
    claim = won(mine)
    assert mine.holds(claim)


@pytest.mark.spec("CL-7")
@pytest.mark.parametrize("end", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"])
def test_a_claim_until_the_end_of_time_can_be_read(mine: Claims, git: Git, end: str) -> None:
    record = {"subject": "a", "owner": "x", "run": "r", "epoch": 1, "expires_at": end}
    commit = git("commit-tree", "HEAD^{tree}", "-F", "-", stdin=json.dumps(record).encode())
    git("update-ref", "refs/ironworks/claims/a", commit)
    assert mine.acquire("a") is None
    holder = mine.holder("a")
    assert holder is not None and holder.owner == "x"


@pytest.mark.spec("CL-7")
def test_what_is_not_even_a_commit_is_no_claim(mine: Claims, git: Git) -> None:
    git("update-ref", "refs/ironworks/claims/a", git("hash-object", "-w", "--stdin", stdin=b"x"))
    assert mine.holder("a") is None
    assert won(mine).epoch == 1


@pytest.mark.spec("CL-7")
def test_a_claim_in_our_name_that_we_did_not_make_is_not_ours_when_its_epoch_differs(
    mine: Claims, git: Git, user: Path
) -> None:
    claim = won(mine)
    text = git("cat-file", "commit", "refs/ironworks/claims/a").partition("\n\n")[2]
    forged = git(
        "commit-tree", "HEAD^{tree}", "-F", "-", stdin=text.replace('"epoch":1', '"epoch":7').encode()
    )
    git("update-ref", "refs/ironworks/claims/a", forged)
    assert not mine.holds(claim)


@pytest.mark.spec("CL-7")
@pytest.mark.parametrize(
    "subject", ["", "../heads/main", "a b", "-a", "A", "a/b", "a\n", "é", "x" * 200, "a.lock"]
)
def test_a_name_that_could_lead_elsewhere_is_refused(mine: Claims, subject: str) -> None:
    with pytest.raises(RefusedError):
        mine.acquire(subject)


@pytest.mark.spec("CL-8")
def test_a_repository_that_cannot_be_reached_is_an_error_and_not_a_lost_claim(
    mine: Claims, user: Path
) -> None:
    claim = won(mine)
    away = user.with_name("away")
    user.rename(away)
    with pytest.raises(GitError):
        mine.renew(claim)
    with pytest.raises(GitError):
        mine.fence(claim)
    away.rename(user)
    assert mine.holds(claim)


@pytest.mark.spec("CL-8")
def test_the_claim_survives_the_loss_of_the_state_directory(
    mine: Claims, factory: NewClaims, tmp_path: Path
) -> None:
    claim = won(mine)
    shutil.rmtree(tmp_path / "me")
    assert won(factory("me")).epoch == claim.epoch


@pytest.mark.spec("CL-9")
def test_crash_points_stand_around_every_write(mine: Claims, theirs: Claims) -> None:
    seen: list[tuple[str, bool]] = []
    crash.arm(lambda name: seen.append((name, theirs.holder("a") is not None)) if "claim" in name else None)
    try:
        claim = won(mine)
        mine.renew(claim)
        mine.release(claim)
    finally:
        crash.arm(None)
    assert seen == [
        ("claim.before_push", False),
        ("claim.after_push", True),
        ("claim.before_renew", True),
        ("claim.before_release", True),
        ("claim.after_release", False),
    ]


@pytest.mark.spec("CL-1")
def test_claims_leave_branches_and_the_checkout_alone(mine: Claims, git: Git) -> None:
    before = (git("for-each-ref", "refs/heads"), git("status", "--porcelain"), git("rev-parse", "HEAD"))
    mine.release(won(mine))
    assert (
        git("for-each-ref", "refs/heads"),
        git("status", "--porcelain"),
        git("rev-parse", "HEAD"),
    ) == before
    assert git("for-each-ref", "--format=%(refname)", "refs/ironworks") == "refs/ironworks/claims/a"


@pytest.mark.spec("CL-11")
def test_a_claim_says_when_another_factory_brought_its_subject_to_rest(
    mine: Claims, theirs: Claims, clock: HandClock
) -> None:
    first = won(theirs)
    assert theirs.rested_at(first) is None
    clock.pass_s(10)
    theirs.release(first)
    rested_at = clock.now()
    clock.pass_s(10)
    assert mine.rested_at(won(mine)) == rested_at


def test_ones_own_rest_and_a_dead_factorys_claim_are_no_rest_elsewhere(
    mine: Claims, theirs: Claims, clock: HandClock
) -> None:
    mine.release(won(mine))
    assert mine.rested_at(won(mine)) is None
    clock.pass_s(LEASE_S + GRACE_S)
    stolen = won(theirs)
    assert theirs.stolen(stolen) and theirs.rested_at(stolen) is None
