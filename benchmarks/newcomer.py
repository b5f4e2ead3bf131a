"""What a newcomer pays: disk of the core install, start of the command line, memory of ten issues."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bars.result import Bar, conclude, options
from bars.shop import Shop

ROOT = Path(__file__).parents[1]
INSTALL_MB, START_RATIO, RSS_MB = 130, 8, 150


def installed_mb(folder: Path) -> float:
    """Site-packages of the core lock file and our source, without bytecode, in MB (10^6 bytes)."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "--quiet", str(folder)], check=True, timeout=120)
    install = ["pip", "install", "--quiet", "--no-compile", "--python", str(folder / "bin" / "python")]
    subprocess.run([*uv, *install, "-r", str(ROOT / "requirements.lock")], check=True, timeout=600)
    packages = next(folder.glob("lib/python*/site-packages"))
    ours = ROOT / "src"
    sizes = [
        path.lstat().st_size
        for top in (packages, ours)
        for path in top.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    return round(sum(sizes) / 1e6, 1)


def starts_s(shop: Shop, rounds: int) -> dict[str, float]:
    """Median seconds of whole processes, run in turn."""
    program = str(Path(sys.executable).with_name("ironworks"))
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "help": [program, "--help"],
        "status": [program, "status", *shop.place()],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            began_s = time.perf_counter()
            subprocess.run(command, env=shop.environment(), check=True, capture_output=True, timeout=60)
            times[name].append(time.perf_counter() - began_s)
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def main() -> None:
    chosen = options(str(__doc__))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size_mb = installed_mb(folder / "venv")
        shop = Shop(folder, 10)
        ran = shop.run(parallel=5)
        starts = starts_s(shop, 9 if chosen.quick else 31)
    bars = [
        Bar("core install, MB", size_mb, INSTALL_MB),
        Bar("--help / python -c pass", round(starts["help"] / starts["bare"], 2), START_RATIO),
        Bar("status / python -c pass", round(starts["status"] / starts["bare"], 2), START_RATIO),
        Bar("orchestrator with ten issues, MB RSS", ran.peak_rss_mb, RSS_MB),
    ]
    conclude(bars, {f"{name}_s": value for name, value in starts.items()}, as_json=chosen.json)


if __name__ == "__main__":
    main()
