"""An overlay's upper folder, copied while the overlay is in use."""

import subprocess
from pathlib import Path

from ironworks.core.errors import SandboxError
from ironworks.sandbox.local.boot import find_bwrap
from ironworks.sandbox.local.view import system_arguments

COPY_TIMEOUT_S = 600.0


def copy_layer(upper: Path, target: Path) -> None:
    """Copy an overlay's upper folder with all that it stands for: modes, links, whiteouts, opaque folders.

    Done where its owner may read what is closed even to the owner. SandboxError says what went wrong.
    """
    target.mkdir()
    command = [find_bwrap(), "--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    for capability in ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER"):
        command += ["--cap-add", capability]
    # Without /proc the C library cannot set the mode of what is closed.
    command += [
        *system_arguments(),
        "--proc",
        "/proc",
        "--ro-bind",
        str(upper),
        "/from",
        "--bind",
        str(target),
        "/to",
    ]
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
