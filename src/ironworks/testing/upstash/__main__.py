"""`python -m ironworks.testing.upstash`: the emulator by itself, for clients that come and go."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

from ironworks.testing.upstash.clock import ScaledClock
from ironworks.testing.upstash.emulator import KEY, UpstashEmulator
from ironworks.testing.upstash.service import Options


def pairs(values: list[str]) -> dict[str, str]:
    return dict(value.rpartition("=")[::2] for value in values)


def read_all() -> None:
    sys.stdin.read()


async def run(options: argparse.Namespace) -> None:
    setup = Options(
        hosts=pairs(options.host),
        repositories={url: Path(path) for url, path in pairs(options.repository).items()},
        max_boxes=options.max_boxes,
        idle_pause_s=options.idle_pause_s,
    )
    emulator = UpstashEmulator(
        Path(options.state),
        keys=options.key or [KEY],
        clock=ScaledClock(options.scale),
        options=setup,
        port=options.port,
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with emulator:
        print(emulator.base_url, flush=True)
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
        if options.until_eof:
            ends.append(asyncio.ensure_future(asyncio.to_thread(read_all)))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ironworks.testing.upstash", description=__doc__)
    parser.add_argument("--state", required=True, help="folder for the boxes' disks")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one; the URL is printed")
    parser.add_argument(
        "--key", action="append", default=[], help=f"an API key that is valid (default {KEY})"
    )
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME=127.0.0.1:PORT", help="for boxes"
    )
    parser.add_argument(
        "--repository", action="append", default=[], metavar="URL=FOLDER", help="a bare repository for boxes"
    )
    parser.add_argument("--max-boxes", type=int, default=10)
    parser.add_argument("--idle-pause-s", type=float, default=3600.0)
    parser.add_argument("--scale", type=float, default=1.0, help="seconds of its clock in a real one")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
