"""Till as a fresh git repository on disk."""

import os
import subprocess
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

KEY = "sk-test-till"


def make_repository(folder: Path) -> Path:
    """Write Till into the empty or absent `folder` and commit it on `main`; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _copy(resources.files("ironworks.testing.till").joinpath("files"), folder)
    identity = ["-c", "user.name=Till", "-c", "user.email=till@localhost"]
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, *identity, "commit", "-q", "-m", "A till that cannot add")
    return folder


def write_configuration(path: Path, base_url: str, *, more: str = "") -> Path:
    """An operator's configuration at `path` whose only provider is the scripted model at `base_url`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(".env").write_text(f"TILL_KEY={KEY}\n", "utf-8")
    path.write_text(
        f"""\
[agent]
use = "builtin"
model = "scripted/till-1"

[providers.scripted]
kind = "anthropic"
base_url = "{base_url}"
key = "env:TILL_KEY"
prices = {{ "*" = {{ input = 3.0, output = 15.0 }} }}
{more}""",
        "utf-8",
    )
    return path


def _copy(source: Traversable, folder: Path) -> None:
    for entry in source.iterdir():
        target = folder / entry.name
        if entry.is_dir():
            if entry.name != "__pycache__":
                target.mkdir(exist_ok=True)
                _copy(entry, target)
        elif not entry.name.endswith(".pyc"):
            target.write_bytes(entry.read_bytes())


def _git(folder: Path, *arguments: str) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, timeout=60)
