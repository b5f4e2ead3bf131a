from pathlib import Path

import pytest

from ironworks.app.trust import TrustStore
from ironworks.core.errors import ConfigError


@pytest.mark.spec("CF-6")
def test_trust_is_for_exact_bytes_of_one_repository(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "trust.json")
    store.record(tmp_path / "a", b"one")
    again = TrustStore(tmp_path / "trust.json")
    assert again.trusts(tmp_path / "a", b"one")
    assert not again.trusts(tmp_path / "a", b"one ")
    assert not again.trusts(tmp_path / "b", b"one")


def test_new_trust_ends_the_old(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "trust.json")
    store.record(tmp_path / "a", b"one")
    store.record(tmp_path / "b", b"other")
    store.record(tmp_path / "a", b"two")
    assert not store.trusts(tmp_path / "a", b"one")
    assert store.trusts(tmp_path / "b", b"other")


def test_it_lies_in_the_users_state_and_is_private(home: Path) -> None:
    store = TrustStore()
    store.record(home / "a", b"one")
    assert store.path == home / ".local" / "state" / "ironworks" / "trust.json"
    assert store.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]"])
def test_a_damaged_store_trusts_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trust.json").write_bytes(content)
    store = TrustStore(tmp_path / "trust.json")
    if content == b"[1]":
        assert not store.trusts(tmp_path, b"x")
    else:
        with pytest.raises(ConfigError, match="damaged"):
            store.trusts(tmp_path, b"x")
