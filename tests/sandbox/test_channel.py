"""What the host makes of a pid 1 that does not keep to the protocol."""

import asyncio
import os
import socket

import pytest

from ironworks.core.errors import SandboxError
from ironworks.sandbox.channel import Channel


@pytest.mark.spec("SB-20")
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"5",
        b"{}",
        b'{"id":"x"}',
        b'{"ready":true}',
        b'{"id":1e999}',
        b"[" * 60000,
    ],
)
async def test_nonsense_closes_the_channel_and_fails_whoever_waits(message: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours)
    waiting = await channel.request("usage")
    with theirs:
        theirs.send(message) if message else theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(SandboxError):
            await asyncio.wait_for(waiting, 20)
        with pytest.raises(SandboxError):
            await channel.request("usage")
        with pytest.raises(SandboxError):
            await channel.ready


@pytest.mark.spec("SB-20")
async def test_answers_to_nothing_are_ignored_and_descriptors_nobody_asked_for_are_closed() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours)
    reading, writing = os.pipe()
    with theirs:
        socket.send_fds(theirs, [b'{"id":99}'], [writing])
        os.close(writing)
        waiting = await channel.request("usage")
        theirs.send(b'{"id":0,"cpu_s":1}')
        assert await asyncio.wait_for(waiting, 20) == {"id": 0, "cpu_s": 1}
        theirs.send(b'{"id":0,"cpu_s":2}')
        assert await asyncio.to_thread(os.read, reading, 1) == b""  # end of file: no copy is left open
    os.close(reading)
    channel.close()


@pytest.mark.spec("SB-20", "SB-39")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_a_sandbox_passes_one_listener_or_all_four_sockets(count: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours)
    with theirs, socket.socket() as any_socket:
        socket.send_fds(theirs, [b'{"ready":true}'], [any_socket.fileno()] * count)
        if count in {2, 3}:
            with pytest.raises(SandboxError):
                await asyncio.wait_for(channel.ready, 20)
            return
        listener, _ = await asyncio.wait_for(channel.ready, 20)
        assert (channel.ways is None) == (count == 1)
        for each in (listener, *(channel.ways or ())):
            each.close()
        channel.close()


@pytest.mark.spec("SB-20")
async def test_a_call_that_is_not_answered_ends_at_its_time_out() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours)
    with theirs, pytest.raises(SandboxError, match="usage"):
        await channel.call("usage", timeout_s=0.05)
    channel.close()
