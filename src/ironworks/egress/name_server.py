"""The name server of a transparent sandbox: every name has one and the same address, and none is looked up.

What is asked goes nowhere, so nothing can be carried out of a sandbox in names. Whom a program then reaches
is decided by the name it gives to the gateway.
"""

import asyncio
import socket
import struct

ADDRESS = "198.18.0.1"
"""Of the range for tests between networks (RFC 2544): nobody's own, and in the sandbox its own."""
TTL_S = 1
HEADER = struct.Struct("!6H")
QUERY_BYTES = 512
RESPONSE, AUTHORITATIVE, RECURSION_ASKED, RECURSION_DONE = 0x8000, 0x0400, 0x0100, 0x0080
KIND_A, CLASS_INTERNET = 1, 1


def answer(query: bytes) -> bytes | None:
    """The answer to one datagram; None where it is no single question. There are addresses only."""
    if len(query) < HEADER.size or len(query) > QUERY_BYTES:
        return None
    number, flags, questions, *_ = HEADER.unpack_from(query)
    end = end_of_name(query, HEADER.size)
    if flags & RESPONSE or flags & 0x7800 or questions != 1 or end is None or len(query) < end + 4:
        return None
    kind, group = struct.unpack_from("!2H", query, end)
    found = (kind, group) == (KIND_A, CLASS_INTERNET)
    said = RESPONSE | AUTHORITATIVE | RECURSION_DONE | flags & RECURSION_ASKED
    record = struct.pack("!3HIH4s", 0xC000 | HEADER.size, kind, group, TTL_S, 4, socket.inet_aton(ADDRESS))
    asked = query[HEADER.size : end + 4]
    return HEADER.pack(number, said, 1, int(found), 0, 0) + asked + (record if found else b"")


def end_of_name(query: bytes, at: int) -> int | None:
    """Where the name that begins at `at` is over; None where it is none, or points elsewhere."""
    begin = at
    while at < len(query) and at - begin < 255:
        if query[at] == 0:
            return at + 1
        if query[at] > 63:
            return None
        at += 1 + query[at]
    return None


async def serve(names: socket.socket) -> None:
    """Answer until cancelled. The socket is non-blocking and stays the caller's."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            query, asking = await loop.sock_recvfrom(names, QUERY_BYTES + 1)
            said = answer(query)
            if said is not None:
                await loop.sock_sendto(names, said, asking)
        except OSError:
            # The asker is gone already, or the host is short of memory for now.
            await asyncio.sleep(0.05)
