"""Reserve before spend: how much of what is left a model call may hold, and what it is charged in the end."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ironworks.core.clock import Clock
from ironworks.core.events import Event, UsageRecorded
from ironworks.core.models import Usage
from ironworks.egress.grant import Grant
from ironworks.egress.price import PriceList
from ironworks.egress.tokens import Tokens
from ironworks.store.ledger import Ledger

T = TypeVar("T")

USUAL_OUTPUT = 32_000
"""Tokens assumed, and set, for a request that names no limit."""
COMFORT_OUTPUT = 8192
"""A call may hold at most half of what is left, as long as it can still answer with this many tokens."""
LEAST_OUTPUT = 1024
"""A call that could not even answer with this many tokens is not made (unless it asked for fewer)."""
_ROUNDING_USD = 2e-6
"""The ledger rounds a reservation up and a cap down to whole micro-dollars."""
WAIT_S = 300.0
"""How long a call waits for others to give back what they hold, before the budget counts as spent."""


@dataclass(frozen=True)
class Quote:
    """A model call before it is made. `input_tokens` is estimated from above."""

    provider: str
    model: str
    prices: PriceList
    input_tokens: int
    long_cache: bool
    """It asks for a cache that lives an hour, whose writing costs more."""
    limit: int | None

    def cost(self, output: int) -> float:
        """The most it can cost with that many output tokens: all input read, or all written to a cache."""
        size = self.input_tokens
        written = Tokens(size, output, cache_write=size, cache_write_1h=size if self.long_cache else 0)
        return max(self.prices.cost(self.model, tokens) for tokens in (Tokens(size, output), written))

    def output(self, left_usd: float) -> int | None:
        """How many tokens it may answer with when that much is left; None when too few to be of use."""
        wanted = self.limit or USUAL_OUTPUT
        half, all = (self._affordable(dollars) for dollars in (left_usd / 2, left_usd))
        if half >= min(wanted, COMFORT_OUTPUT):
            return min(wanted, half)
        if all >= min(wanted, LEAST_OUTPUT):
            return min(wanted, all, COMFORT_OUTPUT)
        return None

    def _affordable(self, dollars: float) -> int:
        """Output tokens that `dollars` pay for, after the input; negative when not even that."""
        fixed = self.cost(0)
        rest = max(0.0, dollars - _ROUNDING_USD) - fixed
        if rest < 0:
            return -1
        per_token = (self.cost(1_000_000) - fixed) / 1_000_000
        return int(rest / per_token) if per_token > 0 else sys.maxsize


@dataclass(frozen=True)
class Reservation:
    """Money set aside on disk. `limit` is the most output it pays for."""

    id: str
    grant: Grant
    quote: Quote
    amount_usd: float
    limit: int


class Budget:
    """Admission of model calls against the caps of attempt, issue, run and day. Lives on one event loop."""

    def __init__(self, ledger: Ledger, clock: Clock, on_event: Callable[[Event, str], None]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._on_event = on_event
        # Threads of our own: the loop's shared ones may all be busy with long git commands.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="budget")
        self._held: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def reserve(self, grant: Grant, quote: Quote) -> Reservation | None:
        """Set the call's worst case aside; None when the budget is spent.

        Waits while others hold what may come back to it. Refusal when the model has no price.
        """
        await self.run(quote.cost, 0)
        end = asyncio.get_running_loop().time() + WAIT_S
        async with self._changed:
            while True:
                left_issue, left = await self.run(self._left, grant)
                output = quote.output(left)
                reservation = await self._taken(grant, quote, output) if output is not None else None
                if reservation is not None:
                    return reservation
                holders = self._held[grant.issue] if quote.output(left_issue) is None else self._held.total()
                if not holders or not await self._wait(end):
                    return None

    async def settle(self, reservation: Reservation, tokens: Tokens | None) -> float:
        """Charge what the call consumed, or all that is reserved when nobody can tell. On disk on return."""
        quote = reservation.quote
        seen = tokens or Tokens()
        cost = reservation.amount_usd if tokens is None else quote.prices.cost(quote.model, tokens)
        usage = Usage(
            provider=quote.provider, model=quote.model[:200], cost_usd=cost, estimated=tokens is None,
            input_tokens=seen.input, output_tokens=seen.output,
            cache_read_tokens=seen.cache_read, cache_write_tokens=seen.cache_write,
        )  # fmt: skip
        grant = reservation.grant
        event = UsageRecorded(run=grant.run, issue=grant.issue, attempt_key=grant.key, usage=usage)
        await self.run(self._ledger.settle, reservation.id, usage)
        await self._returned(grant)
        await self.run(self._on_event, event, f"usage/{reservation.id}")
        return cost

    async def release(self, reservation: Reservation) -> None:
        """The call was not made."""
        await self.run(self._ledger.release, reservation.id)
        await self._returned(reservation.grant)

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """A blocking call on the budget's own threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*arguments))

    def close(self) -> None:
        self._threads.shutdown()

    async def _taken(self, grant: Grant, quote: Quote, output: int) -> Reservation | None:
        """`_take`, undone when the caller is cancelled meanwhile. The condition's lock is held."""
        taking = asyncio.ensure_future(self._take(grant, quote, output))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if (reservation := await taking) is not None:
                await self.run(self._ledger.release, reservation.id)
                self._held[grant.issue] -= 1
                self._changed.notify_all()
            raise

    async def _take(self, grant: Grant, quote: Quote, output: int) -> Reservation | None:
        amount = quote.cost(output)
        id = await self.run(
            lambda: self._ledger.reserve(
                run=grant.run, issue=grant.issue, attempt_key=grant.key, amount_usd=amount,
                issue_cap=grant.issue_cap_usd, run_cap=grant.run_cap_usd, day_cap=grant.day_cap_usd,
            )
        )  # fmt: skip
        if id is None:
            return None
        self._held[grant.issue] += 1
        return Reservation(id, grant, quote, amount, output)

    def _left(self, grant: Grant) -> tuple[float, float]:
        """US dollars left of the issue's own cap, and of all caps together."""
        issue = grant.issue_cap_usd - self._ledger.spent(issue=grant.issue)
        left = issue
        if grant.run_cap_usd is not None:
            left = min(left, grant.run_cap_usd - self._ledger.spent(run=grant.run))
        if grant.day_cap_usd is not None:
            today = self._clock.now().date().isoformat()
            left = min(left, grant.day_cap_usd - self._ledger.spent(day=today))
        return issue, left

    async def _returned(self, grant: Grant) -> None:
        async with self._changed:
            self._held[grant.issue] -= 1
            self._changed.notify_all()

    async def _wait(self, end: float) -> bool:
        try:
            async with asyncio.timeout_at(end):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Wait for `work` to its end, also when the waiting task is cancelled: money must not be half moved."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
