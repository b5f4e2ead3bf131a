"""Bars and numbers of one benchmark, for people and as JSON."""

import argparse
import json
import os
import sys
from typing import NamedTuple


class Bar(NamedTuple):
    """A measured value that must not be above its limit; None where it could not be measured."""

    name: str
    value: float | None
    limit: float

    @property
    def ok(self) -> bool:
        return self.value is not None and self.value <= self.limit


def options(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: below 45 s on an idle machine")
    return parser.parse_args()


def conclude(bars: list[Bar], numbers: dict[str, object], *, as_json: bool) -> None:
    """Print what was measured, JSON last, and exit with 1 when a bar is missed."""
    numbers = {**numbers, "load": round(os.getloadavg()[0], 1), "cores": len(os.sched_getaffinity(0))}
    if not as_json:
        for bar in bars:
            value = "not measured" if bar.value is None else f"{bar.value:g}"
            print(f"{'ok  ' if bar.ok else 'MISS'} {bar.name}: {value} (limit {bar.limit:g})")
        print("a loaded machine measures itself: compare with the load\n")
    told = [{**bar._asdict(), "ok": bar.ok} for bar in bars]
    print(json.dumps({"bars": told, "numbers": numbers}, indent=2))
    sys.exit(not all(bar.ok for bar in bars))
