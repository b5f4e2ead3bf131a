"""The composition root: configuration in, a factory out. The one place that chooses implementations."""

import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from ironworks.agents.registry import agent_named
from ironworks.app.backend import make_backend
from ironworks.app.configuration import Loaded
from ironworks.app.control import control_server
from ironworks.app.place import Place, hold_lock, make_state
from ironworks.core.clock import SystemClock
from ironworks.core.events import Event
from ironworks.egress.gateway import Gateway
from ironworks.engine.factory import Factory, current_run, mark_told
from ironworks.engine.floor import Parts
from ironworks.forge.claim import Claims
from ironworks.forge.local.forge import LocalForge
from ironworks.git.depot import Depot
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store


class Options(NamedTuple):
    """What the command line adds to the settings."""

    backlog: Path | None = None


@contextlib.asynccontextmanager
async def open_factory(place: Place, loaded: Loaded, options: Options) -> AsyncIterator[Factory]:
    """A factory on `place`, alone on its state directory, listening to its control socket.

    Everything it started is ended when the block is left. BusyError when another one runs there.
    """
    make_state(place)
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(hold_lock(place.state))
        store = Store(place.database, clock)
        stack.callback(store.close)
        run = current_run(store)
        depot = Depot(place.depot, place.git_dir)
        backend = make_backend(loaded.settings.sandbox, place.state)
        stack.push_async_callback(backend.close)
        ledger = Ledger(store, clock)
        factory: Factory | None = None

        def on_event(event: Event, key: str) -> None:
            assert factory is not None
            factory.floor.record_now(event, key)

        gateway = Gateway(
            providers=loaded.settings.providers,
            network=loaded.settings.network,
            ledger=ledger,
            secrets=loaded.secrets,
            clock=clock,
            on_event=on_event,
        )
        stack.push_async_callback(gateway.close)
        factory = Factory(
            Parts(
                run=run,
                repository=place.root,
                state=place.state,
                settings=loaded.settings,
                depot=depot,
                forge=LocalForge(depot, options.backlog, clock),
                claims=Claims(
                    depot,
                    owner=_owner(place),
                    run=run,
                    clock=clock,
                    lease_s=loaded.settings.limits.lease_s,
                ),
                store=store,
                ledger=ledger,
                backend=backend,
                gateway=gateway,
                agent=lambda name, alive: agent_named(name, alive=alive),
                clock=clock,
                backlog=str(options.backlog or ""),
            )
        )
        await stack.enter_async_context(control_server(place.socket, _listener(factory)))
        yield factory


def tell(place: Place, run: str) -> None:
    """Remember that people have the report of `run`: the next one is a new one. The last thing to do."""
    store = Store(place.database, SystemClock())
    try:
        mark_told(store, run)
    finally:
        store.close()


def _listener(factory: Factory) -> Any:
    async def on_message(verb: str, message: dict[str, Any]) -> dict[str, Any] | None:
        if verb == "stop":
            factory.stop(now=bool(message.get("now")))
        else:
            await factory.look()
        return {"run": factory.parts.run}

    return on_message


def _owner(place: Place) -> str:
    """Who claims: this state directory on this machine. Everybody can read it, so it names neither."""
    facts = f"{socket.gethostname()}:{place.state.stat().st_ino}:{place.state}"
    return f"factory-{hashlib.sha256(facts.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
