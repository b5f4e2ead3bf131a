"""The event log, facts and messages on a real SQLite file, from several threads and processes."""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.core import crash
from ironworks.core.errors import MissingError, RefusedError, StoreError
from ironworks.core.events import AnswerGiven, IssueRejected, RunFinished
from ironworks.store.store import Store, from_us, to_us

SPAWN = multiprocessing.get_context("spawn")
TIMEOUT_S = 60


class StoppedClock:
    at = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return 0.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "ironworks.db", StoppedClock())
    yield opened
    opened.close()


def answer(text: str = "yes", run: str = "r1", issue: str = "a") -> AnswerGiven:
    return AnswerGiven(run=run, issue=issue, text=text)


@pytest.mark.spec("ST-1")
def test_an_event_is_recorded_once_per_key(store: Store) -> None:
    assert store.append(answer("first"), key="k") == 1
    assert store.append(answer("second"), key="k") is None
    [recorded] = store.events()
    assert (recorded.seq, recorded.key, recorded.at) == (1, "k", StoppedClock.at)
    assert recorded.event == answer("first")


@pytest.mark.spec("ST-2")
def test_events_come_in_order_and_can_be_narrowed(store: Store) -> None:
    for number, (run, issue) in enumerate([("r1", "a"), ("r2", "a"), ("r1", "b"), ("r1", "a")]):
        store.append(answer(str(number), run, issue), key=str(number))
    assert [recorded.seq for recorded in store.events()] == [1, 2, 3, 4]
    assert [recorded.seq for recorded in store.events(run="r1", issue="a")] == [1, 4]
    assert [recorded.seq for recorded in store.events(after=1, limit=2)] == [2, 3]
    assert store.events(run="") == []
    assert store.last_seq() == 4


def test_an_empty_log_is_empty(store: Store) -> None:
    assert (store.events(), store.last_seq(), store.runs(), store.inbox()) == ([], 0, [], [])


@pytest.mark.spec("ST-2")
def test_runs_are_listed_oldest_first(store: Store) -> None:
    for number, run in enumerate(["zz", "aa", "zz", "mm"]):
        store.append(RunFinished(run=run, exit_code=0), key=str(number))
    assert store.runs() == ["zz", "aa", "mm"]


@pytest.mark.spec("ST-3")
def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "-état 📦?#%.db"
    first = Store(path)
    first.append(answer(), key="k")
    first.remember("fact", {"n": 1})
    first.close()
    second = Store(path)
    assert [recorded.event for recorded in second.events()] == [answer()]
    assert second.recall("fact") == {"n": 1}
    second.close()


@pytest.mark.spec("ST-3")
def test_the_file_uses_a_write_ahead_log_and_full_synchronisation(store: Store, tmp_path: Path) -> None:
    with store.database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert (tmp_path / "ironworks.db-wal").exists()


@pytest.mark.spec("ST-4")
def test_the_last_write_of_a_fact_wins(store: Store) -> None:
    assert store.recall("k") is None
    store.remember("k", {"a": 1})
    store.remember("k", {"b": [2, None, "x"]})
    store.remember("other", {})
    assert store.recall("k") == {"b": [2, None, "x"]}
    assert store.recall("other") == {}


@pytest.mark.spec("ST-5")
def test_a_message_waits_until_it_is_handled_and_keeps_its_first_result(store: Store) -> None:
    first = store.post("answer", "a", {"text": "blue"})
    second = store.post("stop", "", {})
    assert [(m.id, m.verb, m.issue, m.payload) for m in store.inbox()] == [
        (first, "answer", "a", {"text": "blue"}),
        (second, "stop", "", {}),
    ]
    assert store.result(first) is None
    store.handled(first, "done")
    store.handled(first, "again")
    assert store.result(first) == "done"
    assert [m.id for m in store.inbox()] == [second]


@pytest.mark.spec("ST-5")
def test_an_unknown_message_is_missing(store: Store) -> None:
    with pytest.raises(MissingError):
        store.handled(7, "done")
    with pytest.raises(MissingError):
        store.result(7)


@pytest.mark.spec("ST-6")
@given(value=st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.lists(st.booleans())))
def test_any_payload_comes_back_as_it_was(value: dict[str, Any]) -> None:
    memory = Store("sqlite://")
    memory.post("v", "i", value)
    memory.remember("k", value)
    assert memory.inbox()[0].payload == memory.recall("k") == value
    memory.close()


@pytest.mark.spec("ST-6")
@pytest.mark.parametrize("text", ["\x00", "a\nb", "' OR 1=1; --", "é", "é", "🧨" * 1000, "x" * 3_000_000])
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    store.append(IssueRejected(run=text, issue=text, reason=text), key=text)
    [recorded] = store.events(run=text, issue=text)
    assert recorded.key == recorded.event.run == text
    assert recorded.event == IssueRejected(run=text, issue=text, reason=text)


@pytest.mark.spec("ST-6")
def test_text_that_is_not_unicode_is_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(RefusedError, match="Unicode"):
        store.post("answer", "name-\udcff", {})
    assert store.inbox() == []
    assert store.post("answer", "a", {"text": "\udcff"}) == 1
    assert store.inbox()[0].payload == {"text": "\udcff"}
    store.append(answer("\udcff"), key="k")
    assert store.events()[0].event == answer("\udcff")


@pytest.mark.spec("ST-7")
def test_a_file_that_is_no_database_is_a_clear_error_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ironworks.db"
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreError, match="not a database") as raised:
        Store(path)
    assert raised.value.hint
    assert path.read_bytes() == b"not a database at all" * 1000


@pytest.mark.spec("ST-7")
def test_a_place_that_cannot_hold_a_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        Store(tmp_path / "file" / "ironworks.db")
    with pytest.raises(StoreError):
        Store(tmp_path)
    with pytest.raises(StoreError, match="not supported"):
        Store("mysql://127.0.0.1/x")
    with pytest.raises(StoreError):
        Store("no url")


@pytest.mark.spec("ST-7")
def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "ironworks.db").close()
    with sqlite3.connect(tmp_path / "ironworks.db") as raw:
        raw.execute("INSERT INTO migrations VALUES ('from_the_future')")
    raw.close()
    with pytest.raises(StoreError, match=r"newer version.*from_the_future"):
        Store(tmp_path / "ironworks.db")


@pytest.mark.spec("ST-7")
def test_an_event_no_version_of_ours_wrote_is_a_clear_error(store: Store, tmp_path: Path) -> None:
    store.append(answer(), key="k")
    with sqlite3.connect(tmp_path / "ironworks.db") as raw:
        raw.execute("""UPDATE events SET body = '{"kind": "Unheard"}'""")
    raw.close()
    with pytest.raises(StoreError, match="event 1 cannot be read"):
        store.events()


@pytest.mark.spec("ST-8")
def test_threads_lose_and_double_nothing(store: Store) -> None:
    def add(number: int) -> int | None:
        return store.append(answer(str(number)), key=str(number % 60))

    with ThreadPoolExecutor(16) as pool:
        seqs = list(pool.map(add, range(120)))
    assert sorted(seq for seq in seqs if seq) == list(range(1, 61))
    assert {recorded.key for recorded in store.events()} == {str(number) for number in range(60)}


def append_many(path: Path, name: str, count: int) -> None:
    opened = Store(path)
    for number in range(count):
        opened.append(answer(issue=name), key=f"{name}-{number}")
        opened.append(answer(issue="shared"), key=f"shared-{number}")
    opened.close()


@pytest.mark.spec("ST-8")
def test_processes_may_open_a_new_file_at_once_and_lose_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ironworks.db"
    workers = [SPAWN.Process(target=append_many, args=(path, f"w{n}", 15)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
        assert worker.exitcode == 0
    opened = Store(path)
    events = opened.events()
    opened.close()
    assert [recorded.seq for recorded in events] == list(range(1, 76))
    assert len({recorded.key for recorded in events}) == 75


@pytest.mark.spec("ST-9")
def test_crash_points_stand_around_an_event(store: Store) -> None:
    seen: list[tuple[str, int]] = []
    crash.arm(lambda name: seen.append((name, store.last_seq())))
    try:
        store.append(answer(), key="k")
    finally:
        crash.arm(None)
    assert seen == [("store.before_event", 0), ("store.after_event", 1)]


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_keep_their_microseconds(at: datetime) -> None:
    assert from_us(to_us(at)) == at
