"""Tests cannot reach beyond this machine, even by mistake."""

import os
import sys

import pytest


@pytest.mark.spec("PJ-7")
@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0), ("forge.example", 443)])
@pytest.mark.parametrize("event", ["socket.connect", "socket.sendto"])
def test_a_test_that_reaches_out_is_stopped(event: str, address: tuple[object, ...]) -> None:
    with pytest.raises(PermissionError, match="loopback"):
        sys.audit(event, None, address)


@pytest.mark.spec("PJ-7")
@pytest.mark.parametrize(
    "address", [("127.0.0.1", 80), ("::1", 80, 0, 0), ("localhost", 80), "/run/x", b"\0x", 7]
)
def test_loopback_and_sockets_without_a_network_are_allowed(address: object) -> None:
    sys.audit("socket.connect", None, address)


def test_no_git_setting_of_the_developer_is_seen() -> None:
    names = {name for name in os.environ if name.startswith("GIT_")}
    assert names == {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_TERMINAL_PROMPT"}
