"""Claims: the exclusive, leased, fenced right to work on something, decided by one shared ref."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, Field

from ironworks.core.clock import Clock
from ironworks.core.crash import crash_point
from ironworks.core.errors import FencedError
from ironworks.core.models import Claim, Model
from ironworks.forge.record import RETRIES, commit_message, parsed, record_ref
from ironworks.git.depot import Depot


class ClaimRecord(Model):
    """What a claim commit's message says. `released` marks the tombstone that keeps the epoch."""

    subject: str
    owner: str
    run: str
    epoch: Annotated[int, Field(ge=1)]
    expires_at: AwareDatetime
    """Of a tombstone: when it was given back."""
    released: bool = False
    stolen: bool = False
    rested_at: AwareDatetime | None = None
    """When another owner, who had it before, gave it back."""


class Claims:
    """Takes, keeps and gives back claims for one factory. Blocking and thread-safe.

    A claim is a ref that points at a commit nobody else can have made; it changes hands by compare-and-set,
    so there is one winner. `owner` is unique per state directory. The holder stops at `expires_at` by its
    clock, others wait a third of `lease_s` longer by theirs: so much, together, may clocks differ and a side
    effect lag behind its fence. Every method raises GitError when the repository cannot be read or written;
    the claim may then still be ours.
    """

    def __init__(self, depot: Depot, *, owner: str, run: str, clock: Clock, lease_s: float = 90) -> None:
        self._depot = depot
        self._owner = owner
        self._run = run
        self._clock = clock
        self.lease_s = lease_s
        self._lease = timedelta(seconds=lease_s)
        self._grace = self._lease / 3
        self._nothing = depot.write_tree(None, {})

    def acquire(self, subject: str) -> Claim | None:
        """The claim, or None while somebody else has it.

        An expired one is taken over with the next epoch. What this owner and run holds already is given again
        (a restart after a crash): within one process, take turns by other means.
        """
        held, record = self._look(subject)
        if record is not None and not record.released:
            if self._is_ours(record):
                return self.renew(_claim(record, held))
            # One state directory has one factory: an earlier run of ours is dead.
            if record.owner != self._owner and not self._is_over(record):
                return None
        new = ClaimRecord(
            subject=subject,
            owner=self._owner,
            run=self._run,
            epoch=record.epoch + 1 if record else 1,
            expires_at=self._clock.now() + self._lease,
            stolen=record is not None and not record.released,
            rested_at=self._rested_at(record),
        )
        commit = self._commit(new)
        crash_point("claim.before_push")
        won = self._depot.push(record_ref("claims", subject), commit, expected=held or None)
        crash_point("claim.after_push")
        return _claim(new, commit) if won else None

    def stolen(self, claim: Claim) -> bool:
        """Whether it was taken over from an owner that let it expire."""
        record = self._read(claim.subject, claim.commit)
        return record is not None and record.stolen

    def rested_at(self, claim: Claim) -> datetime | None:
        """When another factory had brought its subject to rest, as far as the claim just before tells."""
        record = self._read(claim.subject, claim.commit)
        return record.rested_at if record is not None else None

    def renew(self, claim: Claim) -> Claim | None:
        """The same claim with a full lease; None when it is lost. Late is fine as long as nobody took it."""
        crash_point("claim.before_renew")
        return self._replace(claim, released=False)

    def holds(self, claim: Claim) -> bool:
        """Whether the repository says now that it is ours, renewals included, and it has not expired."""
        held, record = self._look_for(claim)
        return bool(held) and record is not None and self._clock.now() < record.expires_at

    def fence(self, claim: Claim) -> None:
        """Call before every side effect. FencedError when the claim is lost: the effect must not happen."""
        if not self.holds(claim):
            raise FencedError(
                f"the claim on {claim.subject} is lost", hint="another factory may be working on it"
            )

    def release(self, claim: Claim) -> None:
        """Give it back; nothing when it is lost or given back already."""
        crash_point("claim.before_release")
        self._replace(claim, released=True)
        crash_point("claim.after_release")

    def holder(self, subject: str) -> Claim | None:
        """Who has it now, ourselves included; None when it is free or expired."""
        held, record = self._look(subject)
        if record is None or record.released or self._is_over(record):
            return None
        return _claim(record, held)

    def _replace(self, claim: Claim, *, released: bool) -> Claim | None:
        """Put a successor of our own claim in its place."""
        for attempt in range(RETRIES):
            held, record = self._look_for(claim)
            if record is None:
                return None
            if attempt and not released:
                return _claim(record, held)  # Another of our threads has just renewed it.
            lease = timedelta() if released else self._lease
            update = {"expires_at": self._clock.now() + lease, "released": released}
            new = record.model_copy(update=update)
            commit = self._commit(new)
            if self._depot.push(record_ref("claims", claim.subject), commit, expected=held):
                return _claim(new, commit)
        return None

    def _look(self, subject: str) -> tuple[str, ClaimRecord | None]:
        """What the ref points at (empty: nothing) and what that says (None: nothing we can read)."""
        held = self._depot.remote_ref(record_ref("claims", subject)) or ""
        return held, self._read(subject, held) if held else None

    def _look_for(self, claim: Claim) -> tuple[str, ClaimRecord | None]:
        """Like `_look`, but None unless it is this claim: same owner, run and epoch, not released."""
        held, record = self._look(claim.subject)
        if record is None or record.released:
            return held, None
        same = (record.owner, record.run, record.epoch) == (claim.owner, claim.run, claim.epoch)
        return held, record if same else None

    def _read(self, subject: str, commit: str) -> ClaimRecord | None:
        message = commit_message(self._depot, commit)
        lines = [] if message is None else message.splitlines()
        record = parsed(ClaimRecord, next((line for line in lines if line.startswith(b"{")), None), commit)
        return record if record is not None and record.subject == subject else None

    def _commit(self, record: ClaimRecord) -> str:
        verb = "Release" if record.released else "Claim"
        return self._depot.commit(
            self._nothing, (), f"{verb} {record.subject}\n\n{record.to_json()}", unique=True
        )

    def _rested_at(self, record: ClaimRecord | None) -> datetime | None:
        rested = record is not None and record.released and record.owner != self._owner
        return record.expires_at if record is not None and rested else None

    def _is_ours(self, record: ClaimRecord) -> bool:
        return (record.owner, record.run) == (self._owner, self._run)

    def _is_over(self, record: ClaimRecord) -> bool:
        # Not `expires_at` + grace: in a stranger's record that may lie beyond the end of all time.
        return self._clock.now() - self._grace >= record.expires_at


def _claim(record: ClaimRecord, commit: str) -> Claim:
    return Claim(
        subject=record.subject,
        owner=record.owner,
        run=record.run,
        epoch=record.epoch,
        expires_at=record.expires_at,
        commit=commit,
    )
