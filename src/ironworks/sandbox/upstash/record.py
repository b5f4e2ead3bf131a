"""Which boxes and snapshots are ours: the service forgets the snapshots of a box that is gone."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from ironworks.core.errors import StoreError
from ironworks.core.models import Model


class Kept(Model):
    """A box or snapshot of the service. `below` is the snapshot it rests on, by our name."""

    id: str
    """Empty for a box that is being made, or whose making was interrupted: it is found by its name."""
    below: str | None
    created_at: datetime
    size_bytes: int = 0


class Tables(Model):
    """By our names."""

    boxes: dict[str, Kept] = {}
    snapshots: dict[str, Kept] = {}


class Record:
    """A file with both, which several processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Tables:
        """As it is now. StoreError when it cannot be read."""
        try:
            return Tables.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return Tables()
        except (OSError, ValidationError) as error:
            hint = "it names your boxes: mend it"
            raise StoreError(f"{self._path} cannot be read: {error}", hint=hint) from error

    def put_box(self, name: str, kept: Kept | None) -> None:
        """None: there is none of that name any more."""
        with self._changing() as tables:
            _put(tables.boxes, name, kept)

    def put_snapshot(self, name: str, kept: Kept | None) -> None:
        with self._changing() as tables:
            _put(tables.snapshots, name, kept)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Tables]:
        """The tables, written when the block ends; nobody else changes them meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tables = self.read()
            yield tables
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(tables.to_json(), "utf-8")
            draft.replace(self._path)


def _put(table: dict[str, Kept], name: str, kept: Kept | None) -> None:
    if kept is None:
        table.pop(name, None)
    else:
        table[name] = kept
