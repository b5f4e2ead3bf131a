"""Files on a disk that have no name any more and still take room, since somebody has them open."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path


def unlinked_bytes(pid: int, folders: Sequence[str]) -> int:
    """What they take below `folders`, as the sandbox names them; `pid` is its pid 1 as the host sees it.

    A process that lets nobody look into it is not counted, nor is what is on its way through a socket.
    """
    found: dict[tuple[int, int], int] = {}
    starts = tuple(f"{folder}/" for folder in folders)
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{each}/fd").iterdir():
                with contextlib.suppress(OSError):
                    status = link.stat()
                    if status.st_nlink == 0 and str(link.readlink()).startswith(starts):
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def descendants(pid: int) -> Iterator[int]:
    """All below a process: in a sandbox the kernel gives every orphan to pid 1."""
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = [int(word) for word in (thread / "children").read_text("ascii").split()]
                waiting += children
                yield from children
