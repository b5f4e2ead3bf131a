"""One address for every name, and no answer to what is no question."""

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.egress.name_server import ADDRESS, answer, serve

A, AAAA, TXT = 1, 28, 16


def question(name: str, kind: int = A, *, number: int = 7, flags: int = 0x0100, count: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", number, flags, count, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize("name", ["registry.example", "a", "a." * 60 + "b", "secret-data.evil.example"])
def test_every_name_has_the_same_address(name: str) -> None:
    asked = question(name)
    said = answer(asked) or b""
    assert struct.unpack_from("!6H", said) == (7, 0x8580, 1, 1, 0, 0)
    assert said[12 : len(asked)] == asked[12:]
    assert said[-4:] == socket.inet_aton(ADDRESS)


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize("kind", [AAAA, TXT, 255])
def test_there_is_no_other_kind_of_record(kind: int) -> None:
    said = answer(question("a.example", kind)) or b""
    assert struct.unpack_from("!6H", said) == (7, 0x8580, 1, 0, 0, 0)


@pytest.mark.spec("SB-39")
@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"x" * 11,
        question("a", flags=0x8100),
        question("a", flags=0x2800),
        question("a", count=0),
        question("a", count=2),
        question("a")[:-1],
        struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + b"\x3f" + b"a" * 63,
        question("a") + b"x" * 600,
    ],
)
def test_what_is_no_single_question_is_not_answered(query: bytes) -> None:
    assert answer(query) is None


@pytest.mark.spec("SB-39")
@given(st.binary(max_size=600), st.booleans())
def test_no_bytes_hurt_it(data: bytes, headed: bool) -> None:
    said = answer(question("a")[:12] + data if headed else data)
    assert said is None or len(said) <= 600


@pytest.mark.spec("SB-39")
async def test_it_goes_on_after_nonsense_and_an_asker_that_left() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking,
    ):
        names.bind(("127.0.0.1", 0))
        names.setblocking(False)
        asking.settimeout(20)
        asking.connect(names.getsockname())
        serving = asyncio.create_task(serve(names))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as leaving:
            leaving.sendto(question("a"), names.getsockname())
        asking.send(b"nonsense")
        asking.send(question("b.example"))
        assert (await asyncio.to_thread(asking.recv, 999))[-4:] == socket.inet_aton(ADDRESS)
        serving.cancel()
        await asyncio.wait([serving])
