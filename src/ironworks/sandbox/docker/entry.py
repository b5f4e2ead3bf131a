"""What a container starts: it calls the host, gives up what is left of its privileges, and becomes pid 1.

It runs as `python3 -I -S entry.py FOLDER PORT` with the image's Python. In FOLDER are the
host's socket, the filter of system calls, and pid1.py.
"""

# The image's Python may be old, and starts faster without what these would import.
# ruff: noqa: PTH118, PTH123

import ctypes
import os
import socket
import sys

SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def main() -> None:
    folder, port = sys.argv[1:]
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(os.path.join(folder, "control"))
    # Nothing is locked here: the engine knows whether a container runs.
    lock = os.open("/dev/null", os.O_RDONLY)
    for each in (control.fileno(), lock):
        os.set_inheritable(each, True)
    add_filter(os.path.join(folder, "filter"))
    words = [str(control.fileno()), str(lock), port]
    os.execve(sys.executable, [sys.executable, "-I", "-S", os.path.join(folder, "pid1.py"), *words], {})


def add_filter(path: str) -> None:
    """Ours stands beside the engine's own: a call must pass both."""
    with open(path, "rb") as file:
        rules = file.read()
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(rules) // 8, rules)
    if libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(
        SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be set")


if __name__ == "__main__":
    main()
