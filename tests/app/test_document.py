import os
from pathlib import Path

import pytest

from ironworks.app.document import read_document
from ironworks.core.errors import ConfigError, MissingError


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\x00")
    assert read_document(tmp_path / "x", follow=False) == b"\xff\x00"


@pytest.mark.spec("CF-8")
def test_a_symbolic_link_is_followed_only_where_the_operator_put_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"secret")
    (tmp_path / "link").symlink_to("x")
    assert read_document(tmp_path / "link") == b"secret"
    with pytest.raises(ConfigError, match="symbolic link"):
        read_document(tmp_path / "link", follow=False)


@pytest.mark.spec("CF-8")
def test_pipes_devices_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError):
            read_document(path)


@pytest.mark.spec("CF-8")
def test_a_file_over_the_limit_is_refused_and_one_at_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_document(tmp_path / "x", limit=5) == b"12345"
    with pytest.raises(ConfigError, match="larger than 4"):
        read_document(tmp_path / "x", limit=4)


def test_no_file_is_missing_and_a_zero_byte_in_a_name_is_an_error_of_ours(tmp_path: Path) -> None:
    for name in ("none", "none/deeper"):
        with pytest.raises(MissingError):
            read_document(tmp_path / name)
    with pytest.raises(ConfigError):
        read_document(Path(f"{tmp_path}/a\0b"))
