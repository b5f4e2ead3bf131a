"""The layers of an overlay: how many one mount can name, and copies of one or of all together."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ironworks.core.errors import SandboxError
from ironworks.sandbox.local.boot import find_bwrap
from ironworks.sandbox.local.view import system_arguments

COPY_TIMEOUT_S = 600.0
OPTION_BYTES = 3900
"""The kernel takes one page of options, and cuts off what is more without a word."""
EXTRA_BYTES = len("/oldroot:") + len("lowerdir=")
"""Beside each path, at most."""


def mountable(folders: Iterable[Path]) -> bool:
    """Whether bubblewrap can name all these folders in one overlay."""
    names = [os.fsencode(folder) for folder in folders]
    escaped = sum(len(name) + name.count(b",") + name.count(b":") + name.count(b"\\") for name in names)
    return escaped + EXTRA_BYTES * len(names) <= OPTION_BYTES


def copy_layer(upper: Path, target: Path) -> None:
    """Copy an overlay's upper folder with all that it stands for: modes, links, whiteouts, opaque folders."""
    _copy(["--ro-bind", str(upper), "/from"], target)


def merge_layers(layers: Sequence[Path], target: Path) -> None:
    """Copy what two or more layers, lowest first, show together."""
    sources = [word for layer in layers for word in ("--overlay-src", str(layer))]
    _copy([*sources, "--ro-overlay", "/from"], target)


def _copy(mount: Sequence[str], target: Path) -> None:
    """Done where the owner of the files may read what is closed even to the owner."""
    target.mkdir()
    command = [find_bwrap(), "--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    for capability in ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER"):
        command += ["--cap-add", capability]
    # Without /proc the C library cannot set the mode of what is closed.
    command += [*system_arguments(), "--proc", "/proc", *mount, "--bind", str(target), "/to"]
    try:
        subprocess.run(
            [*command, "--", "/usr/bin/cp", "-a", "/from/.", "/to/"],
            check=True,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COPY_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise SandboxError(f"a sandbox's disk cannot be copied: {said}") from None
    except subprocess.TimeoutExpired:
        raise SandboxError(f"a sandbox's disk could not be copied in {COPY_TIMEOUT_S:g} s") from None
