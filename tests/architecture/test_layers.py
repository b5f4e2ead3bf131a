"""The layers of the architecture hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spec("PJ-2")
def test_every_import_points_down_the_layers() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.spec("PJ-2")
def test_no_package_stands_outside_the_layers() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip() for layer in layers for name in layer.split("|")}
    assert {init.parent.name for init in (ROOT / "src/ironworks").glob("*/__init__.py")} == named
