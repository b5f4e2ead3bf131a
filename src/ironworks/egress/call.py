"""One request of a sandbox to a provider, from its first check to its settled bill."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from ironworks.egress import header
from ironworks.egress.budget import Budget, Quote, Reservation, finished
from ironworks.egress.client import Reply, Request
from ironworks.egress.dialect import Json
from ironworks.egress.grant import Grant
from ironworks.egress.meter import Meter
from ironworks.egress.provider import Provider
from ironworks.egress.refusal import Refusal, denial
from ironworks.egress.tally import Tally
from ironworks.egress.tokens import Tokens
from ironworks.egress.upstream import Answer, Outgoing, dial, exchange

ANSWER_BYTES = 32 << 20


class Call:
    """Serves one request on a provider's route. `path` is what follows the provider's name."""

    def __init__(
        self, provider: Provider, budget: Budget, grant: Grant, tally: Tally, request: Request, reply: Reply
    ) -> None:
        self._provider = provider
        self._dialect = provider.dialect
        self._budget = budget
        self._grant = grant
        self._tally = tally
        self._request = request
        self._reply = reply
        self._scrubber = provider.scrubber()

    async def serve(self, path: str, query: str) -> None:
        """Answer it, or raise Refusal."""
        if not self._grant.models:
            raise denial("no-models", "this sandbox may not talk to models")
        target = self._provider.target(path, query)
        method = self._request.method
        if method == "POST" and self._dialect.metered.fullmatch(path):
            await self._metered(path, target)
        elif any(method == allowed and pattern.fullmatch(path) for allowed, pattern in self._dialect.free):
            await self._free(target)
        else:
            raise denial("endpoint", f"{method} {path[:100]} is not an endpoint that the gateway passes on")

    async def _free(self, target: str) -> None:
        outgoing = self._provider.outgoing(self._request, target, self._request.body)
        to = await self._provider.destination()
        streams = await dial(to, tls=to.scheme == "https")
        async with exchange(streams, to, outgoing) as answer:
            await self._whole(answer, await self._body(answer))

    async def _metered(self, path: str, target: str) -> None:
        body = _decoded(self._request.body)
        outgoing = self._provider.outgoing(self._request, target, b"")
        quote = self._quote(path, body)
        reservation = await self._budget.reserve(self._grant, quote)
        if reservation is None:
            self._tally.over_budget = True
            raise Refusal(402, "budget", "The model budget is spent: this request was not sent.")
        bill = Bill(self._budget, reservation, self._tally)
        try:
            await self._paid(bill, outgoing, self._final(body, reservation))
        finally:
            # Whatever ended it early, nobody knows how much was done: all that was reserved is charged.
            await bill.settle(None)

    def _quote(self, path: str, body: Json) -> Quote:
        model = self._dialect.model(path, body)
        if not model:
            raise Refusal(400, "no-model", "the request names no model")
        if beyond := self._dialect.unbounded(body):
            raise denial("unbounded", f"{beyond} is not allowed: what it costs cannot be bounded beforehand")
        raw = self._request.body
        return Quote(
            provider=self._provider.name,
            model=model,
            prices=self._provider.prices,
            input_tokens=self._tally.estimate(model, len(raw)),
            long_cache=b'"1h"' in raw,
            limit=self._dialect.limit(body),
        )

    def _final(self, body: Json, reservation: Reservation) -> bytes:
        """The request as it is sent: re-encoded, so that what was priced is what is read, and limited."""
        body = self._dialect.prepared(body)
        quote, limit = reservation.quote, reservation.limit
        if quote.cost(limit) > quote.cost(0):
            # Also when it is what was asked for: a request may carry its limit under two names.
            body = self._dialect.limited(body, limit)
        return json.dumps(body, separators=(",", ":")).encode()

    async def _paid(self, bill: "Bill", outgoing: Outgoing, body: bytes) -> None:
        outgoing = Outgoing(outgoing.method, outgoing.target, outgoing.headers, body)
        try:
            to = await self._provider.destination()
            streams = await dial(to, tls=to.scheme == "https")
        except BaseException as error:
            await bill.release()
            if isinstance(error, Refusal):
                self._tally.provider_failure = str(error)
            raise
        self._tally.requests += 1
        try:
            async with exchange(streams, to, outgoing) as answer:
                await self._answer(bill, answer)
        except Refusal as refusal:
            self._tally.provider_failure = str(refusal)
            raise

    async def _answer(self, bill: "Bill", answer: Answer) -> None:
        if answer.status >= 300:
            await bill.release()
            self._tally.provider_failure = failure(answer)
            await self._whole(answer, await self._body(answer))
            return
        self._check_encoding(answer)
        streaming = header.value_of(answer.headers, b"content-type") == "text/event-stream"
        meter = Meter(self._dialect, streaming=streaming)
        if streaming:
            await self._stream(bill, answer, meter)
        else:
            body = await self._body(answer)
            meter.feed(body)
            await self._settle(bill, meter.finish())
            await self._whole(answer, body)
        self._tally.provider_failure = None

    async def _stream(self, bill: "Bill", answer: Answer, meter: Meter) -> None:
        await self._reply.start(answer.status, self._headers(answer))
        async for chunk in answer.chunks():
            meter.feed(chunk)
            if meter.ended:
                # Before the client can act on the end of the answer.
                await self._settle(bill, meter.tokens)
            await self._reply.write(self._scrubber.feed(chunk))
        tokens = meter.finish()
        await self._settle(bill, tokens if meter.complete else None)
        await self._reply.write(self._scrubber.rest())
        await self._reply.end()

    async def _settle(self, bill: "Bill", tokens: Tokens | None) -> None:
        await bill.settle(tokens)
        if tokens is not None:
            self._tally.learn(bill.model, len(self._request.body), tokens.input)

    async def _body(self, answer: Answer) -> bytes:
        self._check_encoding(answer)
        body = bytearray()
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > ANSWER_BYTES:
                raise Refusal(502, "too-large", "the provider's answer is too large")
        return bytes(body)

    async def _whole(self, answer: Answer, body: bytes) -> None:
        await self._reply.send(answer.status, self._headers(answer), self._scrubber.whole(body))

    def _headers(self, answer: Answer) -> header.Headers:
        return [
            (name, self._scrubber.whole(value)) for name, value in header.back(answer.headers, guarded=True)
        ]

    def _check_encoding(self, answer: Answer) -> None:
        if header.value_of(answer.headers, b"content-encoding") not in {"", "identity"}:
            raise Refusal(502, "encoded", "the provider compressed its answer although it was asked not to")


class Bill:
    """A reservation that is closed exactly once, whatever happens to the task that made it."""

    def __init__(self, budget: Budget, reservation: Reservation, tally: Tally) -> None:
        self._budget = budget
        self._reservation = reservation
        self._tally = tally
        self._closed = False
        self.model = reservation.quote.model

    async def settle(self, tokens: Tokens | None) -> None:
        if not self._closed:
            self._closed = True
            self._tally.spent_usd += await finished(self._budget.settle(self._reservation, tokens))

    async def release(self) -> None:
        if not self._closed:
            self._closed = True
            await finished(self._budget.release(self._reservation))


def failure(answer: Answer) -> str | None:
    """What an answer says about the provider: `401`, `429 until ...`; None when it is about the request."""
    if answer.status not in {401, 402, 403, 408, 429} and answer.status < 500:
        return None
    until = _retry_time(header.value_of(answer.headers, b"retry-after"))
    return f"{answer.status} until {until:%Y-%m-%dT%H:%M:%SZ}" if until else str(answer.status)


def _retry_time(value: str) -> datetime | None:
    try:
        if value.isdecimal():
            return datetime.now(UTC) + timedelta(seconds=int(value))
        return parsedate_to_datetime(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _decoded(data: bytes) -> Json:
    try:
        body: Any = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refusal(400, "bad-json", "the request body is not a JSON object")
    return body
