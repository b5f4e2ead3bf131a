"""A gateway in a process of its own: `python -m tests.egress.gateway_process DATABASE PROVIDER_URL ALLOW...`

Prints its port, then serves until it is killed and prints its events.
"""

import asyncio
import sys
from pathlib import Path

from tests.egress.conftest import anthropic, grant, listener, secrets

from ironworks.core.clock import SystemClock
from ironworks.core.settings import NetworkSettings
from ironworks.egress.gateway import Gateway
from ironworks.store.ledger import Ledger
from ironworks.store.store import Store


async def main(database: str, url: str, *allow: str) -> None:
    clock = SystemClock()
    store = Store(Path(database))
    gateway = Gateway(
        providers={"claude": anthropic(url)},
        network=NetworkSettings(),
        ledger=Ledger(store, clock),
        secrets=secrets,
        clock=clock,
        on_event=lambda event, key: print(event.to_json(), flush=True),
    )
    with listener() as socket:
        attachment = gateway.attach(socket, grant(allow=allow))
        print(socket.getsockname()[1], flush=True)
        await asyncio.Event().wait()
        await attachment.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
