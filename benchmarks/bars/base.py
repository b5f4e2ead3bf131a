"""The project that every sandbox of the benchmark starts from: real dependencies, installed once."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

DEPENDENCIES = {
    "@babel/core": "7.25.2",
    "@babel/preset-env": "7.25.3",
    "@emotion/react": "11.13.0",
    "@emotion/styled": "11.13.0",
    "@mui/icons-material": "5.16.7",
    "@mui/material": "5.16.7",
    "eslint": "8.57.0",
    "jest": "29.7.0",
    "next": "14.2.5",
    "react": "18.3.1",
    "react-dom": "18.3.1",
    "typescript": "5.5.4",
    "webpack": "5.93.0",
    "webpack-cli": "5.1.4",
}
FILES, MEGABYTES = 20_000, 300
QUICK_FOLDERS, QUICK_EACH, QUICK_BYTES = 40, 50, 4000


class Base(NamedTuple):
    """A folder with `node_modules` in it, and what it holds."""

    path: Path
    files: int
    megabytes: float
    source: str
    """`npm`, or `made` for a small stand-in."""


def real_base() -> Base:
    """Installed by npm's own client into a cache folder, the first time."""
    folder = cache() / "base"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        npm_install(folder, DEPENDENCIES)
        (folder / "installed").touch()
    base = counted(folder, "npm")
    if base.files < FILES or base.megabytes < MEGABYTES:
        raise SystemExit(f"the base is too small: {base.files} files, {base.megabytes} MB")
    return base


def small_base(folder: Path) -> Base:
    """A stand-in that needs no network."""
    for number in range(QUICK_FOLDERS):
        package = folder / "node_modules" / f"package-{number}"
        package.mkdir(parents=True)
        for name in range(QUICK_EACH):
            (package / f"{name}.js").write_text("//" + "x" * QUICK_BYTES)
    (folder / "package.json").write_text("{}")
    return counted(folder, "made")


def counted(folder: Path, source: str) -> Base:
    sizes = [
        (Path(at) / name).lstat().st_size
        for at, _, names in os.walk(folder / "node_modules")
        for name in names
    ]
    return Base(folder, len(sizes), round(sum(sizes) / 1e6, 1), source)


def npm_install(folder: Path, packages: dict[str, str]) -> None:
    """No scripts of packages are run."""
    folder.mkdir(parents=True)
    about = {"name": "base", "version": "1.0.0", "private": True, "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(about))
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(["npm", "install", *quiet], cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=900)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ironworks" / "benchmarks"
