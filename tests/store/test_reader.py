import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ironworks.core.errors import StoreError
from ironworks.core.events import RunFinished
from ironworks.store.reader import Reader
from ironworks.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a b%?#" / "ironworks.db"


def test_it_reads_what_the_store_wrote(path: Path) -> None:
    store = Store(path)
    for number, run in enumerate(("one", "two", "one")):
        store.append(RunFinished(run=run, issue=f"i{number}", exit_code=number), key=str(number))
    store.post("retry", "i0", {})
    store.handled(store.post("pause", "", {}), "paused")
    reader = Reader(path)
    recorded = store.events()
    assert [row.seq for row in reader.rows()] == [item.seq for item in recorded]
    assert [row.event for row in reader.rows()] == [item.event.model_dump(mode="json") for item in recorded]
    assert datetime.fromtimestamp(reader.rows()[0].at_s, UTC) == recorded[0].at
    assert [row.event["exit_code"] for row in reader.rows(run="one", after=1)] == [2]
    assert [row.event["exit_code"] for row in reader.rows(issue="i1")] == [1]
    assert reader.runs() == store.runs() == ["one", "two"]
    assert [(note.verb, note.issue) for note in reader.waiting()] == [("retry", "i0")]
    store.close()


def test_what_is_not_there_yet_is_empty_and_is_not_made(path: Path) -> None:
    reader = Reader(path)
    assert (reader.rows(), reader.runs(), reader.waiting()) == ([], [], [])
    assert not path.parent.exists()
    path.parent.mkdir()
    sqlite3.connect(path).close()
    path.touch()
    assert (reader.rows(), reader.runs(), reader.waiting()) == ([], [], [])


def test_a_file_that_is_no_database_is_an_error(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 99)
    with pytest.raises(StoreError):
        Reader(path).rows()
