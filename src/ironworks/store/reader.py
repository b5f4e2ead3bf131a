"""The event log read through the standard library alone: `status` must not wait for SQLAlchemy."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.core.errors import StoreError

BUSY_TIMEOUT_S = 10.0


class Row(NamedTuple):
    """An event as it stands in the log; `event` is its plain JSON, not validated."""

    seq: int
    at_s: float
    """Seconds since 1970, UTC."""
    event: dict[str, Any]


class Waiting(NamedTuple):
    """A person's command that no factory has handled yet."""

    id: int
    verb: str
    issue: str


class Reader:
    """Read-only; a database that does not exist is empty. Opens anew for each call, so it may be kept.

    Every method raises StoreError when the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, *, run: str | None = None, issue: str | None = None, after: int = 0) -> list[Row]:
        """Events in commit order, those with `seq > after`; all runs and issues unless named."""
        query = "SELECT seq, at_us, body FROM events WHERE seq > ?"
        values: list[object] = [after]
        for column, value in (("run", run), ("issue", issue)):
            if value is not None:
                query += f" AND {column} = ?"
                # A name that is no Unicode text is nobody's, and no database can be asked for it.
                values.append(value.encode("utf-8", "replace").decode())
        with self._connection() as connection:
            found = connection.execute(query + " ORDER BY seq", values).fetchall()
        return [Row(seq, at_us / 1e6, json.loads(body)) for seq, at_us, body in found]

    def runs(self) -> list[str]:
        """Every run that has an event, oldest first."""
        with self._connection() as connection:
            found = connection.execute("SELECT run FROM events GROUP BY run ORDER BY min(seq)").fetchall()
        return [run for (run,) in found]

    def waiting(self) -> list[Waiting]:
        """Commands nobody has handled yet, oldest first."""
        query = "SELECT id, verb, issue FROM messages WHERE result IS NULL ORDER BY id"
        with self._connection() as connection:
            return [Waiting(*row) for row in connection.execute(query).fetchall()]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(self._open()) as connection:
                tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('events', 'messages')"
                # The process that makes the database may not have got to its tables yet.
                if connection.execute(tables).fetchone() == (2,):
                    yield connection
                else:
                    with closing(_empty()) as nothing:
                        yield nothing
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(f"{self._path} cannot be read: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            return _empty()
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE events(seq, at_us, run, issue, body); CREATE TABLE messages(id, verb, issue, result)"
    )
    return connection
