"""What the factory adds to ten trivial issues, beside a shell loop over `git worktree` with as many jobs.

The loop runs the same agent and the same suite, once each, two at a time, and merges; it boots no sandbox,
proves nothing and survives nothing. overhead = (wall of the run - wall of the loop) / issues, so sandboxes,
their git and the suites that prove the work (baseline, base's own tests, fail-to-pass, every landing) all
count against us: an upper bound of what the bar means. The report's own lower bound is told beside it, and
the CPU time of the orchestrator alone, which a loaded machine hardly stretches.
"""

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bars.result import Bar, conclude, options
from bars.shop import Shop

ISSUES, JOBS = 10, 2
OVERHEAD_S = 1.0
LOOP = """\
set -e
printf '%s\\n' {names} | xargs -P {jobs} -I@ sh -ec '
git worktree add -q -b loop/@ ../loop-@ && cd ../loop-@ && sh {work} @ && python3 check.py report.xml || true'
git checkout -q -b merged
for name in {names}; do
  git -c user.name=L -c user.email=l@localhost merge -q --no-edit "loop/$name"
  python3 check.py report.xml || true
done
"""


def loop_s(shop: Shop) -> float:
    """Wall seconds of the peer."""
    script = LOOP.format(names=" ".join(shop.names), jobs=JOBS, work=shop.work)
    began_s = time.monotonic()
    subprocess.run(
        ["sh", "-c", script], cwd=shop.repository, env=shop.environment(),
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    took_s = time.monotonic() - began_s
    merged = subprocess.run(
        ["git", "rev-list", "--count", "--no-merges", "main..merged"],
        cwd=shop.repository, capture_output=True, check=True, text=True, timeout=60,
    )  # fmt: skip
    if int(merged.stdout) != ISSUES:
        raise SystemExit(f"the loop landed {merged.stdout.strip()} of {ISSUES}")
    return took_s


def measured(folder: Path) -> dict[str, float]:
    peer_s = loop_s(Shop(folder / "loop", ISSUES))
    shop = Shop(folder / "run", ISSUES)
    ran = shop.run(parallel=JOBS)
    report = ran.report
    if len(report["integration"]["merged"]) != ISSUES:
        raise SystemExit(f"not all landed: {report['integration']}")
    suite_s = sum(stage["suite_s"] for issue in report["issues"] for stage in issue["stages"])
    return {
        "loop_s": peer_s,
        "run_s": ran.wall_s,
        "wall_s": report["wall_s"],
        "critical_path_s": report["critical_path_s"],
        "agent_s": report["agent_s"],
        "suite_s": suite_s,
        "orchestrator_cpu_s": ran.cpu_s / ISSUES,
        "over_loop_s": (ran.wall_s - peer_s) / ISSUES,
        "over_critical_path_s": (report["wall_s"] - report["critical_path_s"]) / ISSUES,
    }


def main() -> None:
    chosen = options(str(__doc__).splitlines()[0])
    rounds = []
    for _ in range(1 if chosen.quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            for part in ("loop", "run"):
                (Path(folder) / part).mkdir()
            rounds.append(measured(Path(folder)))
    numbers = {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}
    bars = [
        Bar("CPU of the orchestrator an issue, s", numbers["orchestrator_cpu_s"], OVERHEAD_S),
        Bar("overhead an issue over a shell loop, s", numbers["over_loop_s"], OVERHEAD_S),
        Bar("overhead an issue over the critical path, s", numbers["over_critical_path_s"], OVERHEAD_S),
    ]
    conclude(bars, dict(numbers), as_json=chosen.json)


if __name__ == "__main__":
    main()
