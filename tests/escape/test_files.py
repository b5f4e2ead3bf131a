"""Files and environment of the host, of other sandboxes, and of the layers below."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh
from tests.escape.conftest import Require
from tests.escape.place import PRELUDE, held, inherited, open_to_all, outside, private, showing

from ironworks.core.errors import IronworksError
from ironworks.core.ports import Mount, Sandbox, SandboxBackend, SandboxSpec

pytestmark = pytest.mark.slow
SEARCH = """
def search(mark, *tops):
    for top in tops:
        for folder, _, files in os.walk(top):
            if any(name == mark for name in files): return folder
    return False
attempt("search", search, *sys.argv[1:])
"""
READ = """
for path in sys.argv[1:]: attempt(path, lambda: open(path, "rb").read(1) or "empty")
"""
ENVIRONMENT = """
def found(text): return text.find(sys.argv[1]) >= 0
attempt("own", lambda: found(" ".join(os.environ)))
attempt("init", lambda: found(open(f"/proc/{os.getpid()}/environ").read()))
"""
CHANGE_BELOW = """
os.chdir(sys.argv[1])
attempt("write", lambda: open("written", "w").write("changed"))
attempt("append", lambda: open("appended", "a").write("changed"))
attempt("through a link", lambda: (os.link("linked", "other"), open("other", "w").write("changed")))
attempt("through a symlink", lambda: (os.symlink("aimed", "pointer"), open("pointer", "w").write("changed")))
attempt("rename over", lambda: (open("new", "w").write("changed"), os.rename("new", "replaced")))
attempt("remove", lambda: os.unlink("removed"))
attempt("mode", lambda: os.chmod("moded", 0o600))
attempt("attribute", lambda: os.setxattr("marked", "user.mark", b"changed"))
attempt("truncate", lambda: os.truncate("cut", 0))
"""
BELOW = ("written", "appended", "linked", "aimed", "replaced", "removed", "moded", "marked", "cut")
REMOUNT = """
def call(*arguments):
    if libc.mount(*arguments): raise OSError(ctypes.get_errno(), "mount")
def writable(path):
    call(b"none", path, None, 32 | 4096, None)
    return True
attempt("remount", lambda: (call(b"/usr", b"/usr", None, 4096, None), writable(b"/usr")))
"""


def on_host(root: Path, name: str) -> Path:
    """Where a file of a sandbox's disk lies on the host."""
    found = next(root.rglob(name), None)
    return found or pytest.skip("needs a backend whose disks lie below its state")


@pytest.mark.spec("SB-15")
async def test_no_file_of_the_host_can_be_found_or_read(sandbox: Sandbox, tmp_path: Path) -> None:
    mark = f"secret-{os.getpid()}"
    (tmp_path / "folder").mkdir()
    secret = tmp_path / "folder" / mark
    secret.write_text("sk-test-host")
    # Outside the search ends in the first folder; inside it goes on through all that might be shown.
    tops = ("/home", "/root", "/tmp", "/var", "/run", "/mnt", "/work", "/etc", "/dev", "/opt")
    await held(sandbox, SEARCH, mark, str(tmp_path), *tops, weak=outside)
    paths = (str(secret), f"/proc/self/root{secret}", f"/proc/thread-self/root{secret}", f"/usr/..{secret}")
    await held(sandbox, READ, *paths, weak=outside)


@pytest.mark.spec("SB-15")
async def test_nothing_of_our_environment_is_there(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRONWORKS_TEST_SECRET", "sk-test-environment")
    await held(sandbox, ENVIRONMENT, "IRONWORKS_TEST_SECRET", weak=inherited)


@pytest.mark.spec("SB-15")
async def test_files_of_other_sandboxes_are_not_there(backend: SandboxBackend, tmp_path: Path) -> None:
    one, two = [await backend.create(SandboxSpec(name=name)) for name in ("one", "two")]
    mark = f"of-two-{os.getpid()}"
    await two.put(f"/work/{mark}", b"sk-test-two")
    await two.put(f"/home/agent/{mark}", b"sk-test-two")
    await two.put(f"/tmp/{mark}", b"sk-test-two")
    tops = (str(tmp_path), "/work", "/home", "/tmp", "/run", "/dev/shm", "/var")
    on_host(tmp_path, mark)
    await held(one, SEARCH, mark, *tops, weak=outside)


def lay(folder: Path) -> dict[str, tuple[bytes, int, list[str]]]:
    for name in BELOW:
        (folder / name).write_bytes(b"as it was")
        (folder / name).chmod(0o644)
    return state(folder)


def state(folder: Path) -> dict[str, tuple[bytes, int, list[str]]]:
    """Everything of the files that a command might change."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: (path.read_bytes(), path.stat().st_mode, os.listxattr(path)) for path in paths}


@pytest.mark.spec("SB-35")
async def test_the_layer_below_is_never_changed(backend: SandboxBackend, tmp_path: Path) -> None:
    first = await backend.create(SandboxSpec(name="first"))
    for name in BELOW:
        await first.put(f"/work/{name}", b"as it was")
    await backend.snapshot(first, "base")
    await backend.destroy("first")
    probe = await backend.create(SandboxSpec(name="one", snapshot="base"))
    changing = await probe.exec(["/usr/bin/python3", "-c", PRELUDE + CHANGE_BELOW, "/work"], timeout_s=30)
    # Every change is made, in the sandbox's own layer ...
    assert changing.stdout.decode().count("OUT") == len(BELOW), changing.text()
    assert await sh(probe, "cat written linked; ls removed || echo gone") == "changedchangedgone\n"
    # ... and none below, as the next one from the same base sees.
    second = await backend.create(SandboxSpec(name="two", snapshot="base"))
    assert await sh(second, f"cat {' '.join(BELOW)}") == "as it was" * len(BELOW)
    assert set((await sh(second, f"stat -c %a {' '.join(BELOW)}")).split()) == {"644"}
    assert (await sh(second, "ls")).split() == sorted(BELOW)
    # Where the folder itself is shown instead of a layer the same program changes all of it.
    plain = tmp_path / "plain"
    plain.mkdir()
    before = lay(plain)
    showing(plain, "/work")(PRELUDE + CHANGE_BELOW, ("/work",))
    after = state(plain)
    assert [name for name in BELOW if name not in after or after[name] != before[name]] == list(BELOW)


@pytest.mark.spec("SB-12", "SB-15")
async def test_a_folder_shown_read_only_cannot_be_written_or_remounted(
    backend: SandboxBackend, require: Require, tmp_path: Path
) -> None:
    require("mounts")
    shown = tmp_path / "shown"
    shown.mkdir()
    lay(shown)
    sandbox = await backend.create(SandboxSpec(name="one", mounts=(Mount(host=str(shown), inside="/shown"),)))
    await held(sandbox, CHANGE_BELOW, "/shown", weak=showing(shown, "/shown"))
    await held(sandbox, REMOUNT, weak=private)


SWAP = """
cd /work; mkdir -p real; printf mine > real/secret
while :; do
  ln -sfn real there; ln -sfn "$0" there; rm there; mkdir there; printf mine > there/secret; rm -r there
done
"""


@pytest.mark.spec("SB-36")
async def test_a_path_that_is_swapped_while_it_is_used_leads_nowhere(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """A folder that turns into a link to the host and back, as fast as it can, under 300 puts and gets."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "secret").write_bytes(b"sk-test-host")
    swapping = asyncio.create_task(sandbox.exec(["sh", "-c", SWAP, str(target)], timeout_s=60))
    got, failed = [], 0
    for number in range(150):
        try:
            got.append(await sandbox.get("/work/there/secret", max_bytes=100))
            await sandbox.put("/work/there/planted", f"{number}".encode())
        except IronworksError:
            failed += 1
    await sandbox.kill_all()
    await swapping
    assert failed, "it was never swapped"
    assert set(got) <= {b"mine", b""}
    assert [path.name for path in target.iterdir()] == ["secret"]
    assert (target / "secret").read_bytes() == b"sk-test-host"


@pytest.mark.spec("SB-36")
async def test_links_to_the_host_stay_links_in_a_snapshot(backend: SandboxBackend, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sk-test-host")
    one = await backend.create(SandboxSpec(name="one"))
    script = 'ln -s "$0" file; ln -s "${0%/*}" folder; ln -s /proc/1/root root; ln file hard; ln -s . loop'
    made = await one.exec(["sh", "-c", script, str(secret)], timeout_s=20)
    assert made.ok, made.text()
    before = (await one.usage()).disk_bytes
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    # Whoever follows these links on the host is led out ...
    folder = on_host(tmp_path, "folder")
    assert (folder / "large").stat().st_size == 8 << 20
    # ... and nothing that counts, freezes or removes does: it would count, or remove, the large file.
    assert (await one.usage()).disk_bytes - before < 1 << 20
    await backend.snapshot(one, "linked")
    assert sum(info.disk_bytes for info in await backend.snapshots()) < 4 << 20
    two = await backend.create(SandboxSpec(name="two", snapshot="linked"))
    assert await sh(two, "readlink file") == f"{secret}\n"
    for path in ("/work/file", "/work/folder/secret", "/work/hard", f"/work/root{secret}"):
        with pytest.raises(IronworksError):
            await two.get(path, max_bytes=100)
    for name in ("one", "two"):
        await backend.destroy(name)
    await backend.remove_snapshot("linked")
    assert secret.read_text() == "sk-test-host"
    assert (tmp_path / "large").exists()


@pytest.mark.spec("SB-35")
async def test_marks_of_the_layers_own_kind_mean_nothing_when_a_command_makes_them(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    """An overlay's own attributes say `look there instead` and `hide what is below`; so does a device 0/0."""
    first = await backend.create(SandboxSpec(name="first"))
    await sh(first, "mkdir d; printf base > d/f; printf base > g")
    await backend.snapshot(first, "base")
    one = await backend.create(SandboxSpec(name="one", snapshot="base"))
    script = (
        "import os\nfor n, v in (('redirect', b'/../../../etc'), ('opaque', b'y'), ('metacopy', b'')):\n"
        " for kind in ('user', 'trusted'):\n"
        "  for p in ('d', 'g'):\n"
        "   try: os.setxattr(p, f'{kind}.overlay.{n}', v)\n"
        "   except OSError: pass\n"
        "try: os.mknod('white', 0o20000, 0)\nexcept OSError: print('refused')\n"
    )
    said = await one.exec(["/usr/bin/python3", "-c", script], timeout_s=20)
    assert said.ok, said.text()
    await backend.snapshot(one, "marked")
    two = await backend.create(SandboxSpec(name="two", snapshot="marked"))
    assert await sh(two, "cat d/f g; ls d; ls passwd d/passwd 2>/dev/null | wc -l") == "basebasef\n0\n"


@pytest.mark.spec("SB-35")
async def test_files_closed_to_everyone_can_be_frozen_continued_counted_and_removed(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    one = await backend.create(SandboxSpec(name="one"))
    await sh(one, "mkdir -p a/b; printf x > a/b/f; printf y > g; chmod 000 a/b/f a/b a g; chmod 000 . ~")
    if os.getuid() != 0:
        # Whoever is not root is really shut out: the sandbox's own user too.
        assert not (await one.exec(["cat", "/work/g"], timeout_s=20)).ok
    await one.usage()
    await backend.snapshot(one, "closed")
    two = await backend.create(SandboxSpec(name="two", snapshot="closed"))
    assert await sh(two, "cd /; chmod 755 /work; cd /work; chmod -R u+rwX a g; cat a/b/f g") == "xy"
    for name in ("one", "two"):
        await backend.destroy(name)
        assert not await backend.has_disk(name)
    await backend.remove_snapshot("closed")
    assert await backend.snapshots() == []


@pytest.mark.spec("SB-35")
async def test_a_set_user_id_file_on_a_disk_is_out_of_reach_of_the_hosts_other_users(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    """A sandbox of root leaves a file that would make whoever runs it root, were it in an open folder."""
    if os.getuid() != 0:
        pytest.skip("needs root, whose set-user-id files are worth something")
    one = await backend.create(SandboxSpec(name="one"))
    await sh(one, "cp /usr/bin/id suid; chmod 4755 suid")
    await one.stop()
    found = on_host(tmp_path, "suid")
    open_to_all(tmp_path)
    assert "Permission denied" in await as_nobody(str(found))
    assert await as_nobody("/usr/bin/id", "-u") == "65534\n"
    # Were its folders open, it would work.
    for folder in found.parents:
        if folder == tmp_path:
            break
        folder.chmod(folder.stat().st_mode | 0o111)
    assert await as_nobody(str(found), "-u") == "0\n"


async def as_nobody(*command: str) -> str:
    """What it prints or why it cannot be run, for a user of no rights."""
    shell = ["sh", "-c", '"$@" 2>&1; :', "sh", *command]
    options = ["--reuid=65534", "--regid=65534", "--clear-groups"]
    process = await asyncio.create_subprocess_exec(
        "setpriv", *options, *shell, stdout=asyncio.subprocess.PIPE, cwd="/"
    )
    with contextlib.suppress(ProcessLookupError):
        said, _ = await asyncio.wait_for(process.communicate(), 30)
    return said.decode()
