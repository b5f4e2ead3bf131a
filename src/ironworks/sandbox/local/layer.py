"""The layers of an overlay: how many one mount can name, and copies of one or of all together."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ironworks.core.errors import SandboxError
from ironworks.sandbox.local import tree
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


def layer_bytes(upper: Path) -> int:
    """What a layer takes on the file system, also in folders that are closed to their owner or too deep."""
    try:
        return tree.size_bytes(upper)
    except OSError:
        script = "du -s -B1 /from; du -s --inodes /from; true"  # files go while it looks
        words = _among_all(["--ro-bind", str(upper), "/from"], ["/bin/sh", "-c", script]).split()
        return int(words[0]) + int(words[2]) * tree.FILE_BYTES


def _copy(mount: Sequence[str], target: Path) -> None:
    target.mkdir()
    _among_all([*mount, "--bind", str(target), "/to"], ["/usr/bin/cp", "-a", "/from/.", "/to/"])


def _among_all(mounts: Sequence[str], program: Sequence[str]) -> bytes:
    """What a program prints that is run where it may read what is closed even to the owner of the files."""
    command = [find_bwrap(), "--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    for capability in ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER"):
        command += ["--cap-add", capability]
    # Without /proc the C library cannot set the mode of what is closed.
    command += [*system_arguments(), "--proc", "/proc", *mounts, "--", *program]
    try:
        return subprocess.run(
            command,
            check=True,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COPY_TIMEOUT_S,
        ).stdout
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise SandboxError(f"a sandbox's disk cannot be read: {said}") from None
    except subprocess.TimeoutExpired:
        raise SandboxError(f"a sandbox's disk could not be read in {COPY_TIMEOUT_S:g} s") from None
