"""How near the demonstration comes to the least wall time that its own work allows."""

import json
import statistics
import subprocess
import sys
import tempfile

from bars.result import Bar, conclude, options

PATH_RATIO = 1.5
KEYS = ("wall_s", "critical_path_s", "serial_s", "agent_s", "sandbox_cpu_s")


def played(seed: int) -> dict[str, float]:
    """The times of one demonstration, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["demo", "--json", "--seed", str(seed), "--dir", f"{folder}/demo"]
        done = subprocess.run(
            [sys.executable, "-m", "ironworks", *words], check=True, capture_output=True, timeout=600
        )
    report = json.loads(done.stdout)["report"]
    return {key: report[key] for key in KEYS}


def main() -> None:
    chosen = options(str(__doc__))
    times = [played(seed) for seed in range(1, 2 if chosen.quick else 6)]
    numbers = {key: round(statistics.median(run[key] for run in times), 2) for key in KEYS}
    ratio = statistics.median(run["wall_s"] / run["critical_path_s"] for run in times)
    bars = [
        Bar("wall over critical path", round(ratio, 2), PATH_RATIO),
        Bar("wall over one after the other", round(numbers["wall_s"] / numbers["serial_s"], 2), 1),
    ]
    conclude(bars, dict(numbers), as_json=chosen.json)


if __name__ == "__main__":
    main()
