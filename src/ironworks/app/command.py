"""Carries a person's command to the factory: into the store's inbox first, then a knock on the socket."""

import time
from typing import Any, NamedTuple

from ironworks.app.control import Verb, send
from ironworks.app.place import Place, factory_pid, make_state
from ironworks.store.store import Store

POLL_S = 0.05


class Sent(NamedTuple):
    """`result` is the factory's answer; None while the command waits, because none runs or has got to it."""

    id: int
    running: bool
    result: str | None


def post(place: Place, verb: Verb, issue: str, payload: dict[str, Any], *, timeout_s: float = 10.0) -> Sent:
    """Leave a command; it is on disk when this returns. With a factory running, wait for its answer."""
    make_state(place)
    store = Store(place.database)
    try:
        id = store.post(verb, issue, payload)
        running = factory_pid(place.state) is not None
        if running:
            send(place.socket, "look")
        return Sent(id, running, _result(store, id, timeout_s) if running else None)
    finally:
        store.close()


def _result(store: Store, id: int, timeout_s: float) -> str | None:
    deadline = time.monotonic() + timeout_s
    while (result := store.result(id)) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return result
