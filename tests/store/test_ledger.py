"""The money: caps hold against threads, processes and kill -9."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.core import crash
from ironworks.core.clock import SystemClock
from ironworks.core.errors import MissingError, RefusedError
from ironworks.core.models import Usage
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

SPAWN = multiprocessing.get_context("spawn")
TIMEOUT_S = 60


class DayClock:
    def __init__(self) -> None:
        self.at = datetime(2030, 1, 1, 23, 59, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return 0.0


@pytest.fixture
def clock() -> DayClock:
    return DayClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "ironworks.db")
    yield opened
    opened.close()


@pytest.fixture
def ledger(store: Store, clock: DayClock) -> Ledger:
    return Ledger(store, clock)


def cost(usd: float) -> Usage:
    return Usage(provider="p", model="m", input_tokens=3, output_tokens=4, cost_usd=usd)


def reserve(
    ledger: Ledger,
    amount_usd: float,
    *,
    run: str = "r",
    issue: str = "a",
    attempt_key: str = "a-work-1",
    issue_cap: float = 1.0,
    run_cap: float | None = None,
    day_cap: float | None = None,
) -> str | None:
    return ledger.reserve(
        run=run, issue=issue, attempt_key=attempt_key, amount_usd=amount_usd,
        issue_cap=issue_cap, run_cap=run_cap, day_cap=day_cap,
    )  # fmt: skip


def reserved(ledger: Ledger, amount_usd: float, **names: str) -> str:
    reservation = reserve(ledger, amount_usd, issue_cap=1000.0, **names)  # type: ignore[arg-type]
    assert reservation is not None
    return reservation


@pytest.mark.spec("ST-10")
def test_a_reservation_up_to_the_cap_is_given_and_one_past_it_is_not(ledger: Ledger) -> None:
    assert reserve(ledger, 0.7) is not None
    assert reserve(ledger, 0.300001) is None
    assert reserve(ledger, 0.3) is not None
    assert reserve(ledger, 0.000001) is None
    assert ledger.spent(issue="a") == 1.0


@pytest.mark.spec("ST-10")
def test_each_cap_counts_its_own(ledger: Ledger, clock: DayClock) -> None:
    reserved(ledger, 0.6, run="r1", issue="a")
    assert reserve(ledger, 0.6, run="r2", issue="a") is None, "an issue's cap counts every run"
    assert reserve(ledger, 0.6, run="r1", issue="b", run_cap=1.0) is None
    assert reserve(ledger, 0.6, run="r2", issue="b", run_cap=1.0, day_cap=1.0) is None
    clock.at += timedelta(minutes=2)
    assert reserve(ledger, 0.6, run="r2", issue="b", run_cap=1.0, day_cap=1.0) is not None


@pytest.mark.spec("ST-11")
def test_settling_charges_the_real_cost_once(ledger: Ledger) -> None:
    reservation = reserved(ledger, 0.9)
    ledger.settle(reservation, cost(0.25))
    ledger.settle(reservation, cost(0.5))
    ledger.release(reservation)
    assert ledger.spent() == 0.25
    assert ledger.usage(run="r") == [cost(0.25)]


@pytest.mark.spec("ST-11")
def test_a_cost_above_the_reservation_is_charged_in_full(ledger: Ledger) -> None:
    ledger.settle(reserved(ledger, 0.1), cost(5.0))
    assert ledger.spent(issue="a") == 5.0
    assert reserve(ledger, 0.000001) is None


@pytest.mark.spec("ST-11")
def test_releasing_frees_what_was_reserved(ledger: Ledger) -> None:
    reservation = reserved(ledger, 0.9)
    ledger.release(reservation)
    ledger.release(reservation)
    assert ledger.spent() == 0
    assert ledger.usage(run="r") == []
    assert reserve(ledger, 1.0) is not None


@pytest.mark.spec("ST-11")
def test_an_unknown_reservation_is_missing(ledger: Ledger) -> None:
    with pytest.raises(MissingError):
        ledger.settle("nothing", cost(1))
    with pytest.raises(MissingError):
        ledger.release("nothing")


@pytest.mark.spec("ST-12")
def test_spending_can_be_narrowed_every_way(ledger: Ledger, clock: DayClock) -> None:
    reserved(ledger, 0.1, run="r1", issue="a", attempt_key="k1")
    ledger.settle(reserved(ledger, 0.9, run="r1", issue="b", attempt_key="k2"), cost(0.2))
    clock.at += timedelta(days=1)
    ledger.settle(reserved(ledger, 0.9, run="r2", issue="a", attempt_key="k3"), cost(0.4))
    assert ledger.spent() == 0.7
    assert ledger.spent(run="r1") == 0.3
    assert ledger.spent(issue="a") == 0.5
    assert ledger.spent(run="r1", issue="a") == 0.1
    assert ledger.spent(attempt_key="k3") == 0.4
    assert ledger.spent(day="2030-01-01") == 0.3
    assert ledger.spent(run="none") == 0
    assert ledger.usage(run="r1") == [cost(0.2)]
    assert ledger.usage(run="r1", issue="a") == []


@pytest.mark.spec("ST-13")
@pytest.mark.parametrize("amount", [-0.01, float("nan"), float("inf"), 1e12])
def test_what_is_no_amount_of_money_is_refused(ledger: Ledger, amount: float) -> None:
    with pytest.raises(RefusedError):
        reserve(ledger, amount)
    reservation = reserved(ledger, 0.5)
    with pytest.raises(RefusedError):
        ledger.settle(reservation, cost(amount))
    assert ledger.spent() == 0.5


def test_an_infinite_cap_is_no_cap(ledger: Ledger) -> None:
    assert reserve(ledger, 1e6, issue_cap=float("inf")) is not None


@pytest.mark.spec("ST-13")
def test_the_noise_of_binary_fractions_costs_nothing_and_less_than_a_micro_dollar_is_rounded_up(
    ledger: Ledger,
) -> None:
    ledger.settle(reserved(ledger, 0.1 + 0.2), cost(0.1 + 0.2))
    assert ledger.spent() == 0.3
    ledger.settle(reserved(ledger, 0.0000001), cost(0.0000001))
    assert ledger.spent() == 0.300001


@pytest.mark.spec("ST-14")
def test_what_a_dead_process_had_reserved_is_charged_in_full_and_marked(ledger: Ledger, store: Store) -> None:
    ledger.settle(reserved(ledger, 0.5), cost(0.1))
    reserved(ledger, 0.25)
    reserved(ledger, 0.25, run="other")
    successor = Ledger(store, SystemClock())
    assert successor.recover("r") == 1
    assert successor.recover("r") == 0
    assert successor.spent(run="r") == 0.35
    assert [(usage.cost_usd, usage.estimated) for usage in successor.usage(run="r")] == [
        (0.1, False),
        (0.25, True),
    ]
    assert successor.recover() == 1


@pytest.mark.spec("ST-14")
def test_the_real_cost_corrects_an_estimate(ledger: Ledger) -> None:
    reservation = reserved(ledger, 0.5)
    ledger.recover()
    ledger.settle(reservation, cost(0.1))
    assert ledger.spent() == 0.1
    assert ledger.usage(run="r") == [cost(0.1)]


@pytest.mark.spec("ST-9")
def test_crash_points_stand_around_a_settlement(ledger: Ledger) -> None:
    reservation = reserved(ledger, 0.5)
    seen: list[tuple[str, float]] = []
    crash.arm(lambda name: seen.append((name, ledger.spent())))
    try:
        ledger.settle(reservation, cost(0.1))
    finally:
        crash.arm(None)
    assert seen == [("store.before_settle", 0.5), ("store.after_settle", 0.1)]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "release", "recover"]),
        st.integers(0, 5),
        st.floats(0, 0.6, allow_subnormal=False),
        st.sampled_from(["a", "b"]),
    ),
    max_size=30,
)


@pytest.mark.spec("ST-10")
@given(ACTIONS)
def test_reservations_never_pass_a_cap_whatever_happens_between(
    actions: list[tuple[str, int, float, str]],
) -> None:
    memory = Store("sqlite://")
    ledger = Ledger(memory, DayClock())
    given_out: list[tuple[str, float]] = []
    for verb, index, amount, issue in actions:
        if verb == "reserve":
            reservation = reserve(ledger, amount, issue=issue, run_cap=1.5)
            given_out += [(reservation, amount)] if reservation else []
        elif verb == "recover":
            ledger.recover()
        elif index < len(given_out):
            reservation, limit = given_out[index]
            ledger.release(reservation) if verb == "release" else ledger.settle(
                reservation, cost(limit * 0.9)
            )
        assert max(ledger.spent(issue="a"), ledger.spent(issue="b")) <= 1.0
        assert ledger.spent(run="r") <= 1.5
    memory.close()


def grab(path: Path, threads: int, tries: int) -> None:
    opened = Store(path)
    ledger = Ledger(opened, SystemClock())

    def spend(number: int) -> None:
        reservation = reserve(
            ledger, 0.01, issue=f"i{number % 2}", issue_cap=0.31, run_cap=0.5, attempt_key=f"{os.getpid()}"
        )
        if reservation and number % 3:
            ledger.settle(reservation, cost(0.01))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(spend, range(tries)))
    opened.close()


@pytest.mark.spec("ST-10")
def test_eight_threads_in_each_of_three_processes_never_pass_a_cap_together(
    tmp_path: Path, store: Store
) -> None:
    workers = [SPAWN.Process(target=grab, args=(tmp_path / "ironworks.db", 8, 60)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
        assert worker.exitcode == 0
    ledger = Ledger(store, SystemClock())
    assert ledger.spent(run="r") == 0.5
    assert max(ledger.spent(issue="i0"), ledger.spent(issue="i1")) <= 0.31


def spend_for_ever(path: Path, journal: Path) -> None:
    """Writes a line before a settlement is made and one after a reservation was given."""
    ledger = Ledger(Store(path), SystemClock())
    with journal.open("ab", buffering=0) as lines:
        while True:
            reservation = reserved(ledger, 0.02)
            lines.write(f"reserved {reservation}\n".encode())
            ledger.settle(reservation, cost(0.01))
            lines.write(f"settled {reservation}\n".encode())


@pytest.mark.spec("ST-14")
@pytest.mark.parametrize("kill_after", [3, 10, 25])
def test_kill_9_loses_no_cent(tmp_path: Path, store: Store, kill_after: int) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    worker = SPAWN.Process(target=spend_for_ever, args=(tmp_path / "ironworks.db", journal))
    worker.start()
    deadline = time.monotonic() + TIMEOUT_S
    while journal.read_bytes().count(b"\n") < kill_after and time.monotonic() < deadline:
        time.sleep(0.005)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(TIMEOUT_S)
    verbs = [line.split()[0] for line in journal.read_text().splitlines()]
    assert len(verbs) >= kill_after
    ledger = Ledger(store, SystemClock())
    open_before = ledger.recover()
    assert open_before <= 1
    usages = ledger.usage(run="r")
    # Everything acknowledged is there; what was cut off in between is charged at its reservation.
    assert sum(not usage.estimated for usage in usages) >= verbs.count("settled")
    assert len(usages) >= verbs.count("reserved")
    assert ledger.spent() == pytest.approx(sum(usage.cost_usd for usage in usages))
