"""What holds for every test: nothing of the developer's set-up leaks in, and nothing leaves the machine."""

import ipaddress
import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from ironworks.testing.engine import MissingEngine, docker_engine

LOCAL_NAMES = {"", "localhost"}


def pytest_configure() -> None:
    forget_own_git()
    sys.addaudithook(refuse_remote)
    # Machines that run these tests may be slow: a deadline would measure them, not us.
    hypothesis.settings.register_profile(
        "ironworks", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("ironworks")


def forget_own_git() -> None:
    """Hide the user's git configuration, and the repository whose hook or rebase may be running us."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]
    os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
    os.environ["GIT_CONFIG_NOSYSTEM"] = "1"
    os.environ["GIT_TERMINAL_PROMPT"] = "0"


def refuse_remote(event: str, args: tuple[object, ...]) -> None:
    if event in {"socket.connect", "socket.sendto"} and is_remote(args[1]):
        raise PermissionError(f"a test tried to reach {args[1]!r}; tests talk to loopback only")


def is_remote(address: object) -> bool:
    """Whether a socket address lies outside this machine; paths of Unix sockets and numbers do not."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        return False
    host = address[0].partition("%")[0]
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host not in LOCAL_NAMES


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a Docker engine of this session's own."""
    try:
        starting = docker_engine()
        address = starting.__enter__()
    except MissingEngine as error:
        pytest.skip(f"needs {error}")
    yield address
    starting.__exit__(None, None, None)
