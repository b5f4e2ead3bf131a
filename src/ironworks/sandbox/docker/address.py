"""Where a container engine answers on this machine. Cheap to import: the doctor asks, with no client."""

import contextlib
import os
import socket
from collections.abc import Iterable

ENGINE_TIMEOUT_S = 3.0


def engine_sockets() -> Iterable[str]:
    named = os.environ.get("DOCKER_HOST", "")
    if named:
        yield named.removeprefix("unix://")
    for folder in ("/run", os.environ.get("XDG_RUNTIME_DIR", "")):
        if folder:
            yield from (f"{folder}/docker.sock", f"{folder}/podman/podman.sock")


def answering_engine(paths: Iterable[str]) -> str | None:
    """The first of these sockets behind which a container engine answers."""
    return next((path for path in paths if path.startswith("/") and answers(path)), None)


def answers(path: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(ENGINE_TIMEOUT_S)
        engine.connect(path)
        engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
        return b" 200 " in engine.recv(64)
    return False
