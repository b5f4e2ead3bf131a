"""Till as a fresh git repository on disk."""

from importlib import resources
from pathlib import Path

from ironworks.testing.repository import commit_all, copy_files

KEY = "sk-test-till"


def make_repository(folder: Path) -> Path:
    """Write Till into the empty or absent `folder` and commit it on `main`; the folder."""
    copy_files(resources.files("ironworks.testing.till").joinpath("files"), folder)
    commit_all(folder, "Till", "A till that cannot add")
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
