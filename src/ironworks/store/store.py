"""What must outlive the process: the event log, small facts, and people's commands to the factory."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from ironworks.core.clock import Clock, SystemClock
from ironworks.core.crash import crash_point
from ironworks.core.errors import MissingError, StoreError
from ironworks.core.events import EVENT, Event, Recorded
from ironworks.core.models import Model
from ironworks.store.database import EVENTS, FACTS, MESSAGES, Database

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message(Model):
    """A person's command, waiting for a factory."""

    id: int
    at: datetime
    verb: str
    issue: str
    payload: dict[str, Any]


class Store:
    """Blocking and thread-safe; any number of processes may share one file.

    `location` is a SQLite file (Path; its folder is made) or a database URL (str). What a method wrote is on
    disk when it returns. Every method raises StoreError when the database cannot be used.
    """

    def __init__(self, location: Path | str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.database = Database(location)

    def append(self, event: Event, *, key: str) -> int | None:
        """Record `event` once per `key`: its sequence number, or None when that key was recorded before."""
        crash_point("store.before_event")
        with self.database.write() as connection:
            if connection.scalar(sa.select(EVENTS.c.seq).where(EVENTS.c.key == key)) is not None:
                return None
            seq = connection.execute(
                EVENTS.insert().values(
                    at_us=to_us(self._clock.now()),
                    key=key,
                    run=event.run,
                    issue=event.issue,
                    body=to_text(event.model_dump(mode="json")),
                )
            ).inserted_primary_key
        crash_point("store.after_event")
        return int(seq[0]) if seq else None

    def events(
        self, *, run: str | None = None, issue: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[Recorded]:
        """Events in commit order, those with `seq > after`; all runs and issues unless named."""
        query = sa.select(EVENTS).where(EVENTS.c.seq > after).order_by(EVENTS.c.seq).limit(limit)
        if run is not None:
            query = query.where(EVENTS.c.run == run)
        if issue is not None:
            query = query.where(EVENTS.c.issue == issue)
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return [_recorded(row) for row in rows]

    def last_seq(self) -> int:
        """The newest event's sequence number; 0 when there is none."""
        with self.database.read() as connection:
            return connection.scalar(sa.select(sa.func.max(EVENTS.c.seq))) or 0

    def runs(self) -> list[str]:
        """Every run that has an event, oldest first."""
        first = sa.func.min(EVENTS.c.seq)
        with self.database.read() as connection:
            return list(connection.scalars(sa.select(EVENTS.c.run).group_by(EVENTS.c.run).order_by(first)))

    def remember(self, key: str, value: dict[str, Any]) -> None:
        """Keep a small fact; the last write of a key wins."""
        text = to_text(value)
        with self.database.write() as connection:
            updated = connection.execute(FACTS.update().where(FACTS.c.key == key).values(value=text))
            if not updated.rowcount:
                connection.execute(FACTS.insert().values(key=key, value=text))

    def recall(self, key: str) -> dict[str, Any] | None:
        with self.database.read() as connection:
            text = connection.scalar(sa.select(FACTS.c.value).where(FACTS.c.key == key))
        return None if text is None else json.loads(text)

    def post(self, verb: str, issue: str, payload: dict[str, Any]) -> int:
        """Leave a command for the factory, also for one that is not running yet; its id."""
        values = {
            "at_us": to_us(self._clock.now()),
            "verb": verb,
            "issue": issue,
            "payload": to_text(payload),
        }
        with self.database.write() as connection:
            key = connection.execute(MESSAGES.insert().values(values)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def inbox(self) -> list[Message]:
        """Commands nobody has handled yet, oldest first."""
        query = sa.select(MESSAGES).where(MESSAGES.c.result.is_(None)).order_by(MESSAGES.c.id)
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return [
            Message(
                id=row.id,
                at=from_us(row.at_us),
                verb=row.verb,
                issue=row.issue,
                payload=json.loads(row.payload),
            )
            for row in rows
        ]

    def handled(self, id: int, result: str) -> None:
        """Take a command out of the inbox; the first result stays. MissingError if there is none such."""
        mine = MESSAGES.c.id == id
        with self.database.write() as connection:
            if connection.scalar(sa.select(MESSAGES.c.id).where(mine)) is None:
                raise MissingError(f"no message {id}")
            connection.execute(
                MESSAGES.update().where(mine, MESSAGES.c.result.is_(None)).values(result=result)
            )

    def result(self, id: int) -> str | None:
        """What came of a command; None until it is handled. MissingError if there is none such."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(MESSAGES.c.result).where(MESSAGES.c.id == id)).one_or_none()
        if row is None:
            raise MissingError(f"no message {id}")
        return None if row.result is None else str(row.result)

    def close(self) -> None:
        self.database.close()


def _recorded(row: Any) -> Recorded:
    try:
        event = EVENT.validate_python(json.loads(row.body), strict=False)
    except (ValidationError, ValueError) as error:
        raise StoreError(
            f"event {row.seq} cannot be read: {error}", hint="was it written by another version of ironworks?"
        ) from error
    return Recorded(seq=row.seq, at=from_us(row.at_us), key=row.key, event=event)


def to_text(value: Any) -> str:
    """JSON in ASCII: no character, not even half a surrogate pair or NUL, can upset a database."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def to_us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(at_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=at_us)
