"""How much one call may hold, and who waits for whom."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.egress.conftest import anthropic, grant

from ironworks.core.clock import SystemClock
from ironworks.core.events import Event
from ironworks.core.settings import Price
from ironworks.egress.budget import COMFORT_OUTPUT, LEAST_OUTPUT, USUAL_OUTPUT, Budget, Quote
from ironworks.egress.price import PriceList
from ironworks.egress.provider import DIALECTS
from ironworks.egress.tokens import Tokens
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store

PRICES = PriceList("claude", anthropic("http://127.0.0.1:9"), DIALECTS["anthropic"])


def quote(limit: int | None = 100_000, input_tokens: int = 0) -> Quote:
    return Quote("claude", "m", PRICES, input_tokens, False, limit)


@pytest.fixture
async def budget(tmp_path: Path) -> AsyncIterator[tuple[Budget, Ledger, list[Event]]]:
    store = Store(tmp_path / "ironworks.db")
    ledger = Ledger(store, SystemClock())
    events: list[Event] = []
    made = Budget(ledger, SystemClock(), lambda event, key: events.append(event))
    yield made, ledger, events
    made.close()
    store.close()


Parts = tuple[Budget, Ledger, list[Event]]


@pytest.mark.spec("EG-6")
@pytest.mark.parametrize(
    ("limit", "left", "expected"),
    [
        (100, 1.0, 100),
        (None, 10.0, USUAL_OUTPUT),
        (100_000, 0.5, 24_999),
        (100_000, 0.1, COMFORT_OUTPUT),
        (100_000, 0.05, 4999),
        (100_000, 0.0102, None),
        (500, 0.0102, 500),
        (500, 0.0, None),
        (500, -5.0, None),
    ],
)
def test_a_call_holds_at_most_half_of_what_is_left_while_that_is_enough(
    limit: int | None, left: float, expected: int | None
) -> None:
    assert quote(limit).output(left) == expected
    assert expected is None or quote().cost(expected) <= left


def test_the_input_is_paid_first_at_its_dearest() -> None:
    paid = quote(input_tokens=1_000_000)
    assert paid.cost(0) == 1.25
    assert paid.output(1.25) is None
    assert paid.output(1.25 + LEAST_OUTPUT * 10e-6 + 1e-4) == LEAST_OUTPUT + 9


@pytest.mark.spec("EG-6")
async def test_a_call_waits_for_another_of_its_issue_and_gets_what_it_gives_back(budget: Parts) -> None:
    made, ledger, _ = budget
    mine = grant(issue_cap_usd=0.02)
    first = await made.reserve(mine, quote(1500))
    assert first is not None
    second = asyncio.create_task(made.reserve(mine, quote(1500)))
    await asyncio.sleep(0.1)
    assert not second.done()
    await made.settle(first, Tokens(100, 10))
    got = await asyncio.wait_for(second, 20)
    assert got is not None
    assert got.amount_usd == pytest.approx(0.015)
    await made.release(got)
    assert ledger.spent() == pytest.approx(0.0002)


@pytest.mark.spec("EG-5")
async def test_a_call_does_not_wait_for_another_issue_when_its_own_cap_is_reached(budget: Parts) -> None:
    made, _, _ = budget
    other = await made.reserve(grant(issue="other"), quote(1500))
    assert other is not None
    assert await asyncio.wait_for(made.reserve(grant(issue_cap_usd=0.001), quote(1500)), 20) is None


@pytest.mark.spec("EG-6")
async def test_a_call_waits_for_other_issues_when_the_runs_cap_is_reached(budget: Parts) -> None:
    made, _, _ = budget
    other = await made.reserve(grant(issue="other", run_cap_usd=0.02), quote(1500))
    assert other is not None
    waiting = asyncio.create_task(made.reserve(grant(run_cap_usd=0.02), quote(1500)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await made.release(other)
    assert await asyncio.wait_for(waiting, 20) is not None


async def test_a_call_that_is_cancelled_while_it_reserves_holds_nothing(budget: Parts) -> None:
    made, ledger, _ = budget
    for _ in range(20):
        call = asyncio.create_task(made.reserve(grant(), quote(1500)))
        await asyncio.sleep(0.001)
        call.cancel()
        try:
            reservation = await call
        except asyncio.CancelledError:
            continue
        assert reservation is not None
        await made.release(reservation)
    assert ledger.spent() == 0
    assert ledger.recover() == 0


@pytest.mark.spec("EG-2")
async def test_a_settled_call_is_an_event(budget: Parts) -> None:
    made, ledger, events = budget
    reservation = await made.reserve(grant(), quote(1500))
    assert reservation is not None
    cost = await made.settle(reservation, None)
    assert cost == reservation.amount_usd == ledger.spent()
    assert [event.model_dump()["usage"]["estimated"] for event in events] == [True]


def test_prices_of_the_operator_cover_caches() -> None:
    prices = {"m": Price(input=1, output=10), "n": Price(input=1, output=10, cache_read=0.1, cache_write=2)}
    own = PriceList("claude", anthropic("http://127.0.0.1:9", prices=prices), DIALECTS["anthropic"])
    tokens = Tokens(4_000_000, 100_000, cache_read=1_000_000, cache_write=2_000_000, cache_write_1h=1_000_000)
    assert own.cost("m", tokens) == pytest.approx(1 + 1 + 1.25 + 2 + 1)
    assert own.cost("n", tokens) == pytest.approx(1 + 0.1 + 2 + 3.2 + 1)
