"""How long a person waits for the simplest answers, measured against the interpreter itself."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.cli.conftest import parked, started

from ironworks.app.place import Place

LIMIT = 8
TRIES = 12


def best_s(*args: str) -> float:
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, timeout=60, check=True)
        times.append(time.perf_counter() - began)
    return min(times)


@pytest.mark.slow
@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("args", [["--help"], ["status"]])
def test_it_starts_within_eight_times_of_a_bare_interpreter(
    place: Place, history: Callable[..., None], args: list[str]
) -> None:
    history(started(), *parked("one"), *parked("two"))
    bare = best_s("-c", "pass")
    assert best_s("-m", "ironworks", *args) <= LIMIT * bare
