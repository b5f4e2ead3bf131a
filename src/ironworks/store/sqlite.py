"""What other users of SQLite in this process need from it."""

import sqlite3
import time
from typing import Any

import sqlalchemy as sa


def heal_subsecond_clock() -> None:
    """Give every later SQLite connection the `unixepoch('subsec')` that SQLite before 3.42 answers with NULL.

    dbos asks for it on Python 3.12 and later, and cannot start without an answer.
    """
    if sqlite3.sqlite_version_info < (3, 42) and not sa.event.contains(sa.Engine, "connect", _heal):
        sa.event.listen(sa.Engine, "connect", _heal)


def _heal(connection: Any, _: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.create_function("unixepoch", 1, lambda _: time.time())
