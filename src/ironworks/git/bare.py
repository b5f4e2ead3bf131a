"""Makes bare repositories that are either complete or not there."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ironworks.git.command import Git


def make_bare(path: Path, object_format: str, fill: Callable[[Path], None] | None = None) -> None:
    """Make a bare repository at `path`, `fill` it, and only then give it its name.

    When another process was faster, its repository stays and ours goes. No hooks, no template.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as folder:
        made = Path(folder, "git")
        made.mkdir()
        options = ("--bare", "--quiet", "--template=", "--initial-branch=base")
        Git(made).run("init", *options, f"--object-format={object_format}")
        if fill is not None:
            fill(made)
        try:
            made.rename(path)
        except OSError:
            if not (path / "HEAD").exists():
                raise
            shutil.rmtree(made)
