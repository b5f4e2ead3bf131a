"""A model that plays a script over the real wire, so that a whole run needs no model and no network."""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h11

from ironworks.core.models import Model
from ironworks.testing.script import Fault, Play, Seen, Step, TokenCount, load_script
from ironworks.testing.wire import answer, error_body, events, flaw, seen

MAX_BODY = 64_000_000
MAX_RECORDED = 10_000
MAX_PROMPT = 50_000
IDLE_S = 300.0
HANG_S = 3600.0


class Exchange(Model):
    """One request as the model saw it. `outcome`: ok, or the fault's name, or why it was refused."""

    stage: str = ""
    issue: str = ""
    round: int = 0
    step: int = 0
    model: str = ""
    stream: bool = False
    outcome: str = "ok"
    key: str = ""
    prompt: str = ""
    """The latest prompt of ours in it, at most MAX_PROMPT characters."""
    usage: TokenCount = TokenCount(input_tokens=0, output_tokens=0)
    at_s: float = 0.0
    """Monotonic time of arrival."""


class ScriptedModel:
    """A loopback Anthropic Messages server: `async with ScriptedModel(play) as model`.

    It keeps no conversation: the step is counted in the request, so that retries, resumed sessions and
    parallel agents just work. Only faults that end after some times are counted here.
    """

    def __init__(
        self, play: Play, *, port: int = 0, on_exchange: Callable[[Exchange], None] | None = None
    ) -> None:
        self.play = play
        self.exchanges: deque[Exchange] = deque(maxlen=MAX_RECORDED)
        self.count = 0
        self.base_url = ""
        self._port = port
        self._on_exchange = on_exchange
        self._faults: Counter[tuple[str, str, int, int]] = Counter()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def select(self, *, stage: str | None = None, issue: str | None = None) -> list[Exchange]:
        """The recorded exchanges of a stage, an issue, or both."""
        return [
            exchange
            for exchange in self.exchanges
            if stage in {None, exchange.stage} and issue in {None, exchange.issue}
        ]

    def tokens(self, *, stage: str | None = None, issue: str | None = None) -> TokenCount:
        """What the answered exchanges would have been charged for."""
        counts = [exchange.usage.model_dump() for exchange in self.select(stage=stage, issue=issue)]
        return TokenCount(**{name: sum(count[name] for count in counts) for name in TokenCount.model_fields})

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, _Reply(writer))
        except (OSError, h11.RemoteProtocolError, TimeoutError):
            pass  # the client's own affair: it went away, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio would report a cancelled connection as an error
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, reply: "_Reply") -> None:
        async for request, body in _requests(reader, reply):
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            if request.method != b"POST" or request.target.partition(b"?")[0] != b"/v1/messages":
                await reply.send(404, error_body(404, f"no {request.target.decode('latin-1')}"))
                continue
            await self._answer(body, headers.get("x-api-key", ""), reply)

    async def _answer(self, body: bytes, key: str, reply: "_Reply") -> None:
        request = _parsed(body)
        wrong = flaw(request["messages"]) if request else "not a Messages request"
        about = seen(request["messages"]) if request else None
        step = None if about is None else self.play.next(about)
        if wrong or request is None or about is None or step is None:
            reason = wrong or f"no scene for {_name(about)}"
            self._record(Exchange(outcome=reason, key=key, at_s=time.monotonic()))
            await reply.send(400, error_body(400, reason))
            return
        fault = self._fault(step, about)
        usage = _within(step.usage or self.play.usage, request)
        exchange = Exchange(
            stage=about.stage,
            issue=about.issue,
            round=about.round,
            step=about.step,
            prompt=about.prompt[:MAX_PROMPT],
            model=str(request.get("model", "")),
            stream=bool(request.get("stream")),
            outcome=fault.kind if fault else "ok",
            key=key,
            usage=TokenCount(input_tokens=0, output_tokens=0) if fault and fault.kind != "slow" else usage,
            at_s=time.monotonic(),
        )
        self._record(exchange)
        await asyncio.sleep(step.pause_s)
        message = answer(step, request, about, usage)
        await (
            reply.fail(fault, message, exchange.stream) if fault else reply.message(message, exchange.stream)
        )

    def _fault(self, step: Step, about: Seen) -> Fault | None:
        """The step's fault, unless it has happened often enough; counts it."""
        if step.fault is None:
            return None
        place = (about.stage, about.issue, about.round, about.step)
        self._faults[place] += 1
        return step.fault if step.fault.times is None or self._faults[place] <= step.fault.times else None

    def _record(self, exchange: Exchange) -> None:
        self.count += 1
        self.exchanges.append(exchange)
        if self._on_exchange:
            self._on_exchange(exchange)


def _within(usage: TokenCount, request: dict[str, Any]) -> TokenCount:
    """No provider answers with more than `max_tokens`."""
    most = request.get("max_tokens")
    if not isinstance(most, int) or usage.output_tokens <= most:
        return usage
    return usage.model_copy(update={"output_tokens": most})


def _name(about: Seen | None) -> str:
    return f"{about.stage} of {about.issue}, round {about.round}" if about else "a prompt without a header"


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    usable = isinstance(request, dict) and isinstance(request.get("messages"), list)
    return request if usable else None


async def _requests(
    reader: asyncio.StreamReader, reply: "_Reply"
) -> AsyncIterator[tuple[h11.Request, bytes]]:
    """The requests of one connection with their bodies, until it closes, idles or turns unusable."""
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = reply.http.next_event()
        if event is h11.NEED_DATA:
            reply.http.receive_data(await asyncio.wait_for(reader.read(65536), IDLE_S))
        elif isinstance(event, h11.Request):
            request, body = event, bytearray()
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                return
        elif isinstance(event, h11.EndOfMessage) and request:
            yield request, bytes(body)
            if reply.http.our_state is not h11.DONE:
                return
            reply.http.start_next_cycle()
        else:
            return


class _Reply:
    """Writes answers to one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(h11.SERVER)
        self._writer = writer

    async def _write(self, *sent: h11.Event) -> None:
        for event in sent:
            data = self.http.send(event)
            self._writer.write(data or b"")
        await self._writer.drain()

    async def _open(self, status: int, headers: dict[str, str]) -> None:
        await self._write(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        fixed = {"content-type": "application/json", "content-length": str(len(body))}
        await self._open(status, {**(headers or {}), **fixed})
        await self._write(h11.Data(data=body), h11.EndOfMessage())

    async def message(self, message: dict[str, Any], stream: bool, *, pause_s: float = 0.0) -> None:
        if not stream:
            await asyncio.sleep(pause_s)
            await self.send(200, json.dumps(message).encode())
            return
        await self._open(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for event in events(message):
            if pause_s:
                await asyncio.sleep(pause_s)
            await self._write(h11.Data(data=event))
        await self._write(h11.EndOfMessage())

    async def fail(self, fault: Fault, message: dict[str, Any], stream: bool) -> None:
        if fault.kind == "status":
            await self.send(fault.status, error_body(fault.status, "as the script wants it"), fault.headers)
        elif fault.kind == "slow":
            await self.message(message, stream, pause_s=fault.delay_s)
        elif fault.kind == "malformed":
            await self.send(200, b'{"type": "message", "content": [{"type": ')
        elif fault.kind == "hang":
            await asyncio.sleep(HANG_S)
        else:
            await self._cut(message, stream)

    async def _cut(self, message: dict[str, Any], stream: bool) -> None:
        """Half an answer, then the end of the connection."""
        pieces = list(events(message)) if stream else [json.dumps(message).encode()]
        kind = "text/event-stream" if stream else "application/json"
        await self._open(200, {"content-type": kind, "content-length": str(sum(map(len, pieces)))})
        half = b"".join(pieces)
        await self._write(h11.Data(data=half[: len(half) // 2]))
        raise ConnectionAbortedError("cut, as the script wants it")


@contextlib.contextmanager
def _log(path: str) -> Iterator[Callable[[Exchange], None] | None]:
    if not path:
        yield None
        return
    with Path(path).open("a", encoding="utf-8", buffering=1) as lines:
        yield lambda exchange: print(exchange.to_json(), file=lines)


async def _run(options: argparse.Namespace) -> None:
    with _log(options.log) as on_exchange:
        script = load_script(Path(options.script))
        async with ScriptedModel(script, port=options.port, on_exchange=on_exchange) as model:
            print(model.base_url, flush=True)
            if options.until_eof:
                await asyncio.to_thread(sys.stdin.buffer.read)
            else:
                await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ironworks.testing.model", description=__doc__)
    parser.add_argument("script", help="JSON file of scenes")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one; the URL is printed")
    parser.add_argument(
        "--log", default="", help="append every exchange to this file, one JSON object a line"
    )
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
