"""The money: every model exchange is reserved before it is made and charged when its price is known."""

import json
import math
import uuid
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import sqlalchemy as sa

from ironworks.core.clock import Clock
from ironworks.core.crash import crash_point
from ironworks.core.errors import MissingError, RefusedError
from ironworks.core.models import Usage
from ironworks.store.database import RESERVATIONS
from ironworks.store.store import Store, to_text, to_us

OPEN, SETTLED, RELEASED, RECOVERED = "open", "settled", "released", "recovered"


class Ledger:
    """Reservations and charges, in whole micro-dollars inside, floats outside. Blocking and thread-safe.

    What is spent is what is settled plus what is still reserved, so parallel exchanges cannot pass a cap
    together. Costs are rounded up and caps down. An exchange belongs to the UTC day it was reserved on.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._database = store.database
        self._clock = clock

    def reserve(
        self,
        *,
        run: str,
        issue: str,
        attempt_key: str,
        amount_usd: float,
        issue_cap: float,
        run_cap: float | None,
        day_cap: float | None,
    ) -> str | None:
        """Set `amount_usd` aside, on disk before this returns; None when that would pass one of the caps.

        The issue's cap counts the issue in every run. RefusedError for an amount that is no sum of money.
        """
        amount = _micro(amount_usd, ROUND_CEILING)
        now = self._clock.now()
        day = now.date().isoformat()
        table = RESERVATIONS.c
        caps = [(table.issue == issue, issue_cap), (table.run == run, run_cap), (table.day == day, day_cap)]
        with self._database.write() as connection:
            for which, cap in caps:
                if cap is not None and _sum(connection, which) + amount > _cap(cap):
                    return None
            id = uuid.uuid4().hex
            connection.execute(
                RESERVATIONS.insert().values(
                    id=id, at_us=to_us(now), day=day, run=run, issue=issue, attempt_key=attempt_key,
                    state=OPEN, micro_usd=amount,
                )
            )  # fmt: skip
        return id

    def settle(self, reservation: str, usage: Usage) -> None:
        """Charge what the exchange really cost, instead of what was reserved. Repeating it changes nothing.

        It also corrects a charge that `recover` had to estimate. MissingError for an unknown reservation.
        """
        crash_point("store.before_settle")
        charged = _micro(usage.cost_usd, ROUND_CEILING)
        text = to_text(usage.model_dump(mode="json"))
        self._close(reservation, (OPEN, RECOVERED), state=SETTLED, micro_usd=charged, usage=text)
        crash_point("store.after_settle")

    def release(self, reservation: str) -> None:
        """Nothing was spent. No effect on what is settled. MissingError for an unknown reservation."""
        self._close(reservation, (OPEN,), state=RELEASED, micro_usd=0)

    def spent(
        self,
        *,
        run: str | None = None,
        issue: str | None = None,
        attempt_key: str | None = None,
        day: str | None = None,
    ) -> float:
        """US dollars settled or still reserved, of everything that matches; `day` is an ISO date (UTC)."""
        wanted = {"run": run, "issue": issue, "attempt_key": attempt_key, "day": day}
        matches = [RESERVATIONS.c[name] == value for name, value in wanted.items() if value is not None]
        with self._database.read() as connection:
            return _sum(connection, *matches) / 1_000_000

    def usage(self, *, run: str, issue: str | None = None) -> list[Usage]:
        """Every charged exchange of a run, oldest first."""
        table = RESERVATIONS.c
        query = sa.select(table.usage).where(table.run == run, table.usage.is_not(None))
        if issue is not None:
            query = query.where(table.issue == issue)
        with self._database.read() as connection:
            texts = connection.scalars(query.order_by(table.seq)).all()
        return [Usage.model_validate(json.loads(text)) for text in texts]

    def recover(self, run: str | None = None) -> int:
        """Charge in full, as estimated, what a process that died had reserved and not settled; how many.

        Call it before a process reserves anything, so that everything open is a dead one's.
        """
        table = RESERVATIONS.c
        query = sa.select(table.id, table.micro_usd).where(table.state == OPEN)
        if run is not None:
            query = query.where(table.run == run)
        with self._database.write() as connection:
            rows = connection.execute(query).all()
            for row in rows:
                usage = Usage(
                    provider="unknown", model="unknown", cost_usd=row.micro_usd / 1_000_000, estimated=True
                )
                connection.execute(
                    RESERVATIONS.update()
                    .where(table.id == row.id)
                    .values(state=RECOVERED, usage=to_text(usage.model_dump(mode="json")))
                )
        return len(rows)

    def _close(self, reservation: str, states: tuple[str, ...], **values: object) -> None:
        mine = RESERVATIONS.c.id == reservation
        with self._database.write() as connection:
            if connection.scalar(sa.select(RESERVATIONS.c.id).where(mine)) is None:
                raise MissingError(f"no reservation {reservation}")
            connection.execute(
                RESERVATIONS.update().where(mine, RESERVATIONS.c.state.in_(states)).values(values)
            )


def _sum(connection: sa.Connection, *matches: sa.ColumnElement[bool]) -> int:
    return int(connection.scalar(sa.select(sa.func.sum(RESERVATIONS.c.micro_usd)).where(*matches)) or 0)


def _micro(usd: float, rounding: str) -> int:
    if not (math.isfinite(usd) and 0 <= usd < 1e9):
        raise RefusedError(f"not an amount of money: {usd}")
    # The noise of binary fractions (0.1 + 0.2) is cut before rounding, or it would cost a micro-dollar.
    exact = (Decimal(repr(float(usd))) * 1_000_000).quantize(Decimal("0.001"))
    return int(exact.to_integral_value(rounding))


def _cap(usd: float) -> int | float:
    return usd if usd == math.inf else _micro(usd, ROUND_FLOOR)
