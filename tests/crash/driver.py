"""Runs the command line and kills this very process at the N-th time a crash point is reached.

`driver.py POINT N ARGUMENTS...`; POINT `record:FILE` kills nothing and writes every name reached to FILE.
"""

import os
import signal
import sys
from pathlib import Path

from ironworks.cli import main
from ironworks.core import crash


def killer(point: str, hit: int) -> None:
    left = [hit]

    def hook(name: str) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    crash.arm(hook)


def recorder(file: Path) -> None:
    def hook(name: str) -> None:
        with file.open("a", encoding="utf-8") as names:
            names.write(f"{name}\n")

    crash.arm(hook)


if __name__ == "__main__":
    point, hit, *arguments = sys.argv[1:]
    if point.startswith("record:"):
        recorder(Path(point.removeprefix("record:")))
    else:
        killer(point, int(hit))
    main(arguments)
