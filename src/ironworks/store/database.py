"""The database as tables, migrations and two kinds of transaction, so that nothing above sees a lock."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ironworks.core.errors import RefusedError, StoreError

BUSY_TIMEOUT_S = 30.0
"""How long a transaction waits for another process's before it gives up."""

METADATA = sa.MetaData()

MIGRATIONS_TABLE = sa.Table("migrations", METADATA, sa.Column("name", sa.Text, primary_key=True))

EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("issue", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("events_by_run", "run", "issue"),
    sqlite_autoincrement=True,
)

FACTS = sa.Table(
    "facts",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

MESSAGES = sa.Table(
    "messages",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("verb", sa.Text, nullable=False),
    sa.Column("issue", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("result", sa.Text),
    sqlite_autoincrement=True,
)

RESERVATIONS = sa.Table(
    "reservations",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("day", sa.Text, nullable=False, index=True),
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Column("issue", sa.Text, nullable=False, index=True),
    sa.Column("attempt_key", sa.Text, nullable=False, index=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("micro_usd", sa.BigInteger, nullable=False),
    sa.Column("usage", sa.Text),
)

Migration = Callable[[sa.Connection], None]


def first_tables(connection: sa.Connection) -> None:
    # A migration that changes a table must first freeze a copy of today's definitions here.
    METADATA.create_all(connection)


MIGRATIONS: list[Migration] = [first_tables]
"""Run in order, once each, recorded by name. Only ever append."""


class Database:
    """A SQLite file (Path), or a SQLAlchemy URL (str). Thread-safe; several processes may share it.

    Raises StoreError when it cannot be opened, is not a database, or was written by a newer version.
    """

    def __init__(self, location: Path | str) -> None:
        with _translated():
            self._engine = _engine(location)
        self._writer = self._engine.execution_options(writes=True)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent view."""
        with _translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Excludes all other writers from its first statement; on disk when the block ends."""
        with _translated(), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    def _migrate(self) -> None:
        with self.write() as connection:
            MIGRATIONS_TABLE.create(connection, checkfirst=True)
            done = set(connection.scalars(sa.select(MIGRATIONS_TABLE.c.name)))
            if unknown := done - {migration.__name__ for migration in MIGRATIONS}:
                raise StoreError(
                    f"the database was written by a newer version: it has {', '.join(sorted(unknown))}",
                    hint="use that version of ironworks, or another --state directory",
                )
            for migration in MIGRATIONS:
                if migration.__name__ not in done:
                    migration(connection)
                    connection.execute(MIGRATIONS_TABLE.insert().values(name=migration.__name__))


def _engine(location: Path | str) -> sa.Engine:
    if isinstance(location, Path):
        try:
            location.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {location.parent}: {error.strerror}") from error
        url = sa.URL.create("sqlite", database=os.fspath(location.absolute()))
    else:
        url = sa.make_url(location)
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"databases of kind {url.get_backend_name()} are not supported", hint="use a file")
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    sa.event.listen(engine, "connect", _prepare)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, record: object) -> None:
    # The driver's own transaction handling would begin late and deferred: `_begin` does it instead.
    connection.isolation_level = None
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while not _uses_wal(connection) and time.monotonic() < deadline:
        time.sleep(0.01)
    connection.execute("PRAGMA synchronous=FULL")


def _uses_wal(connection: Any) -> bool:
    """Switch; False when another process just opens the file too: SQLite does not wait here by itself."""
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    except connection.OperationalError as error:
        if "locked" in str(error):
            return False
        raise
    return True


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _translated() -> Iterator[None]:
    """Driver errors as ours; text that no database can hold as a refusal."""
    try:
        yield
    except SQLAlchemyError as error:
        detail = str(getattr(error, "orig", None) or error)
        raise StoreError(
            f"the database cannot be used: {detail}",
            hint="check its folder's permissions and free space; a broken file can be moved away",
        ) from error
    except UnicodeEncodeError as error:
        raise RefusedError(f"not valid Unicode text: {error.object!r:.100}") from error
