"""Folders of this host, copied into a box: it cannot be shown them."""

import asyncio
import hashlib
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ironworks.core.errors import CapabilityError, MissingError, SandboxError
from ironworks.core.models import json_bytes
from ironworks.core.ports import Mount
from ironworks.sandbox.upstash import program

if TYPE_CHECKING:
    from ironworks.sandbox.upstash.sandbox import UpstashSandbox

MARKS = "/home/agent/.ironworks/mounts"
MAX_BYTES = 1 << 30
TIMEOUT_S = 1800.0
UNPACK = """
import os, shutil, sys, tarfile
for name in os.listdir(sys.argv[1]):
    path = os.path.join(sys.argv[1], name)
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as packed:
    packed.extractall(sys.argv[1], **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))
"""


async def show(sandbox: "UpstashSandbox", mounts: Sequence[Mount]) -> None:
    """Copy what is not there yet, or was changed here since. What is changed inside stays changed."""
    for mount in mounts:
        mark = f"{MARKS}/{hashlib.sha256(mount.inside.encode()).hexdigest()[:24]}"
        state = await asyncio.to_thread(_state, Path(mount.host))
        if await _read(sandbox, mark) == state:
            continue
        packed = await asyncio.to_thread(_packed, Path(mount.host))
        result = await sandbox.exec(
            [program.PYTHON, "-I", "-c", UNPACK, mount.inside], stdin=packed, cwd="/", timeout_s=TIMEOUT_S
        )
        if not result.ok:
            raise SandboxError(f"{mount.host} cannot be copied into the box: {result.text(500)}")
        await sandbox.put(mark, state)


def refuse(mounts: Sequence[Mount]) -> None:
    """CapabilityError for what would not be copied."""
    for mount in mounts:
        if not Path(mount.host).is_dir():
            raise CapabilityError(f"only a folder of this host can be copied into a box: {mount.host}")


async def _read(sandbox: "UpstashSandbox", path: str) -> bytes:
    try:
        return await sandbox.get(path, max_bytes=1000)
    except MissingError:
        return b""


def _state(folder: Path) -> bytes:
    """A word that changes with what is in it. CapabilityError when it is too large."""
    facts: list[tuple[str, int, int, int]] = []
    size = 0
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            full = Path(path) / name
            stat = full.lstat()
            size += stat.st_size
            if size > MAX_BYTES:
                raise CapabilityError(
                    f"{folder} is too large to be copied into a box: over {MAX_BYTES} bytes"
                )
            facts.append((str(full.relative_to(folder)), stat.st_mode, stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256(json_bytes(sorted(facts))).hexdigest().encode()


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        packed.add(folder, arcname=".", filter=_nobodys)
    return buffer.getvalue()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o600 | (0o100 if member.isdir() else 0)
    return member
