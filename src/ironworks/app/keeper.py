"""The process in which a hand-made sandbox lives; started by `keep.start`, never by people."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from ironworks.app.backend import make_backend
from ironworks.app.control import listen_on, remove_socket
from ironworks.app.frame import json_frame, read, send
from ironworks.app.keep import Kept, Order, missing, told
from ironworks.core.errors import CapabilityError, IronworksError, RefusedError, SandboxError
from ironworks.core.ports import Sandbox, SandboxBackend, SandboxSpec
from ironworks.core.settings import NetworkSettings, SandboxSettings

DATA_BYTES = 512 << 20
UNREAD_BYTES = 256 << 20
"""So much of a command's output is held for a caller that is slower than the command, and no more."""
NO_LIMIT_S = 1e8


class Keeper:
    """Holds one sandbox and does what callers ask of it, until told to end."""

    def __init__(self, backend: SandboxBackend, sandbox: Sandbox, env: dict[str, str]) -> None:
        self._backend = backend
        self._sandbox = sandbox
        self._env = env
        self._ending = False
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One call of one caller."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                call, data = await _request(reader)
                working = asyncio.ensure_future(self._do(call, data, writer))
                writer.write(json_frame("result", await _unless_gone(working, reader)))
            except IronworksError as error:
                writer.write(json_frame("error", told(error)))
            except (KeyError, TypeError, ValueError) as error:
                writer.write(json_frame("error", told(RefusedError(f"not understood: {error!r}"))))
            await writer.drain()
        writer.close()
        if self._ending:
            self.ended.set()

    async def _do(self, call: dict[str, Any], data: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            return await self._done(call, data, writer)
        except SandboxError as error:
            if not isinstance(error, CapabilityError):
                # Most likely it has died: the next call gets a new one on the same disk.
                self._ending = True
            raise

    async def _done(self, call: dict[str, Any], data: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
        match call.pop("verb"):
            case "exec":
                return await self._exec(call, data, writer)
            case "put":
                await self._sandbox.put(call["path"], data, mode=call["mode"])
            case "get":
                send(writer, "stdout", await self._sandbox.get(call["path"], max_bytes=call["max_bytes"]))
            case "snapshot":
                await self._backend.snapshot(self._sandbox, call["name"], live=call["live"])
                self._ending = not call["live"]
            case "pause":
                await self._sandbox.pause()
            case "resume":
                await self._sandbox.resume()
            case "usage":
                return (await self._sandbox.usage()).model_dump(mode="json")
            case "end":
                self._ending = True
            case verb:
                raise RefusedError(f"a keeper knows no {verb!r}")
        return {}

    async def _exec(self, call: dict[str, Any], stdin: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
        unread = asyncio.get_running_loop().create_future()

        def pass_on(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            send(writer, stream, data)
            if writer.transport.get_write_buffer_size() > UNREAD_BYTES and not unread.done():
                unread.set_result(None)

        running = asyncio.ensure_future(
            self._sandbox.exec(
                call["argv"],
                stdin=stdin,
                env={**self._env, **call["env"]},
                cwd=call["cwd"],
                timeout_s=call["timeout_s"] or NO_LIMIT_S,
                on_output=pass_on,
                max_output=0,
            )
        )
        try:
            await asyncio.wait([running, unread], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise RefusedError(
                    f"more than {UNREAD_BYTES} bytes of output were not read: the command was ended"
                )
            result = running.result()
        finally:
            running.cancel()
            await asyncio.wait([running])
        return {
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "duration_s": round(result.duration_s, 3),
        }


async def _request(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    kind, text = await read(reader)
    call = json.loads(text)
    if kind != "request" or not isinstance(call, dict):
        raise RefusedError("a call begins with a request")
    data = bytearray()
    while part := (await read(reader))[1]:
        data += part
        if len(data) > DATA_BYTES:
            raise RefusedError(f"more than {DATA_BYTES} bytes at once")
    return call, bytes(data)


async def _unless_gone(
    working: "asyncio.Future[dict[str, Any]]", reader: asyncio.StreamReader
) -> dict[str, Any]:
    """What comes of it; it is cancelled when the caller hangs up, as on Ctrl-C."""
    gone = asyncio.ensure_future(reader.read(1))
    both: list[asyncio.Future[Any]] = [working, gone]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionResetError("the caller has hung up")
        return working.result()
    finally:
        for each in both:
            each.cancel()
        await asyncio.wait(both)


@contextlib.asynccontextmanager
async def _kept(one: Kept) -> AsyncIterator[Keeper]:
    """The keeper of a sandbox that is up in the block."""
    order = one.order() or Order(spec=SandboxSpec(name=one.name))
    async with contextlib.AsyncExitStack() as stack:
        backend = make_backend(SandboxSettings.model_validate({"backend": order.backend}), one.state)
        stack.push_async_callback(backend.close)
        if one.order() is None and not await backend.has_disk(one.name):
            raise missing(one.name, [found.name for found in await backend.sandboxes()])
        sandbox = await backend.create(order.spec)
        stack.push_async_callback(sandbox.stop)
        env = await _gateway(one, order, sandbox, stack) if order.allow else {}
        yield Keeper(backend, sandbox, env)


async def _gateway(
    one: Kept, order: Order, sandbox: Sandbox, stack: contextlib.AsyncExitStack
) -> dict[str, str]:
    """A way out to the ordered hosts; the environment that leads there."""
    # Keepers are many and most have no gateway: what it takes is loaded where it is needed.
    from ironworks.core.clock import SystemClock
    from ironworks.egress.gateway import Gateway
    from ironworks.egress.grant import Grant
    from ironworks.store.ledger import Ledger
    from ironworks.store.store import Store

    if sandbox.listener is None:
        raise CapabilityError(f"a sandbox of the {order.backend} backend has no gateway")
    clock = SystemClock()
    store = Store(one.state / "ironworks.db", clock)
    stack.callback(store.close)
    gateway = Gateway(
        providers={}, network=NetworkSettings(), ledger=Ledger(store, clock), clock=clock,
        secrets=lambda where: where, on_event=lambda event, key: print(event.to_json(), flush=True),
    )  # fmt: skip
    stack.push_async_callback(gateway.close)
    grant = Grant(key=one.name, run="", issue="", stage="by-hand", issue_cap_usd=1, allow=order.allow)
    return gateway.attach(sandbox.listener, grant, ways=sandbox.ways).env


async def keep(one: Kept, report: int) -> None:
    """Hold the sandbox until somebody ends it. `report`, a descriptor, gets a line: it is up, or why not."""
    with one.hold() as mine, os.fdopen(report, "w") as caller:
        try:
            if mine:
                async with _kept(one) as keeper:
                    await _serve(one, keeper, caller)
            else:
                caller.write("{}\n")
        except IronworksError as error:
            caller.write(json.dumps({"error": told(error)}) + "\n")


async def _serve(one: Kept, keeper: Keeper, caller: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, keeper.ended.set)
    server = await asyncio.start_unix_server(keeper.serve, sock=listen_on(one.socket))
    caller.write("{}\n")
    caller.close()
    await keeper.ended.wait()
    server.close()
    remove_socket(one.socket)


if __name__ == "__main__":
    asyncio.run(keep(Kept(Path(sys.argv[1]), sys.argv[2]), int(sys.argv[3])))
