import os
from pathlib import Path

import pytest
from tests.contract.sandbox.commands import sh

from ironworks.core.errors import MissingError, RefusedError
from ironworks.core.ports import Sandbox


@pytest.mark.spec("SB-7")
@pytest.mark.parametrize(
    "name", ["a", "-rf", "with space", "new\nline", "\u00e9e\u0301", "🔥", "\udcff", "a" * 255]
)
async def test_a_file_comes_back_as_it_went_in(sandbox: Sandbox, name: str) -> None:
    data = os.urandom(300_000)
    await sandbox.put(f"/work/deep/er/{name}", data, mode=0o750)
    assert await sandbox.get(f"/work/deep/er/{name}", max_bytes=300_000) == data
    listing = await sandbox.exec(["stat", "-c", "%a", "--", f"/work/deep/er/{name}"], timeout_s=20)
    assert listing.stdout == b"750\n"
    assert await sh(sandbox, "ls deep/er | wc -l") in {"1\n", "2\n"}  # a name with a newline shows as two


@pytest.mark.spec("SB-7")
async def test_a_file_replaces_what_was_there(sandbox: Sandbox) -> None:
    await sandbox.put("/work/f", b"a longer first version")
    await sandbox.put("/work/f", b"")
    assert await sandbox.get("/work/f", max_bytes=10) == b""


@pytest.mark.spec("SB-7")
async def test_a_planted_symlink_leads_nowhere_but_into_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sk-test-host")
    await sandbox.exec(["ln", "-s", str(secret), "/work/link"], timeout_s=20)
    await sandbox.exec(["ln", "-s", str(tmp_path), "/work/folder"], timeout_s=20)
    for path in ("/work/link", "/work/folder/secret", str(secret)):
        with pytest.raises(MissingError):
            await sandbox.get(path, max_bytes=100)
    await sandbox.put("/work/link", b"written")
    with pytest.raises(RefusedError):
        await sandbox.put("/work/folder/new", b"written")
    assert secret.read_text() == "sk-test-host"
    assert not (tmp_path / "new").exists()
    assert await sandbox.get("/work/link", max_bytes=100) == b"written"


@pytest.mark.spec("SB-7")
async def test_only_regular_files_of_bounded_size_are_read(sandbox: Sandbox) -> None:
    await sh(sandbox, "mkfifo pipe; mkdir dir; printf 12345 > five; : > none; chmod 0 none")
    for path in ("/work/pipe", "/work/dir", "/dev/zero"):
        with pytest.raises(RefusedError):
            await sandbox.get(path, max_bytes=100)
    with pytest.raises(RefusedError):
        await sandbox.get("/work/five", max_bytes=4)
    assert await sandbox.get("/work/five", max_bytes=5) == b"12345"
    with pytest.raises(MissingError):
        await sandbox.get("/work/five/below", max_bytes=5)


@pytest.mark.spec("SB-7")
@pytest.mark.parametrize(
    "path", ["relative", "", "/work/nul\0", "/work/", "/usr/bin/x", "/work/" + "a" * 300, "/proc/x"]
)
async def test_what_cannot_be_written_is_refused_with_a_reason(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await sandbox.put(path, b"x")
    assert caught.value.message


@pytest.mark.spec("SB-7")
async def test_a_file_cannot_replace_a_folder(sandbox: Sandbox) -> None:
    await sh(sandbox, "mkdir -p dir/x")
    with pytest.raises(RefusedError):
        await sandbox.put("/work/dir", b"x")
    assert await sh(sandbox, "find . -mindepth 1 | sort") == "./dir\n./dir/x\n"
