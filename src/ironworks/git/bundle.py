"""Bundles: how commits travel between the depot and a sandbox, and the customs check on the way in."""

import re
from dataclasses import dataclass
from io import FileIO

from ironworks.core.errors import RefusedError

MAX_HEADER_BYTES = 64 * 1024
BUNDLE_REF = "refs/heads/ironworks-in"
OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class BundleHeader:
    """What a bundle says about itself: its pack starts at `pack_at` and declares `objects` objects."""

    head: str
    prerequisites: tuple[str, ...]
    pack_at: int
    objects: int


def write_header(head: str, prerequisites: tuple[str, ...]) -> bytes:
    """The text in front of the pack; SHA-256 ids need version 3."""
    first = "# v2 git bundle" if len(head) == 40 else "# v3 git bundle\n@object-format=sha256"
    lines = [first, *(f"-{oid} " for oid in prerequisites), f"{head} {BUNDLE_REF}", "", ""]
    return "\n".join(lines).encode("ascii")


def read_header(file: FileIO) -> BundleHeader:
    """Parse the start of an untrusted bundle. RefusedError unless it is plain and carries exactly one ref."""
    start = read_exactly(file, MAX_HEADER_BYTES)
    text, blank, rest = start.partition(b"\n\n")
    if not blank:
        raise RefusedError("the bundle has no header within its first 64 KiB")
    lines = text.split(b"\n")
    if lines[0] not in {b"# v2 git bundle", b"# v3 git bundle"}:
        raise RefusedError("this is not a git bundle")
    while len(lines) > 1 and lines[1].startswith(b"@"):
        if lines.pop(1) not in {b"@object-format=sha1", b"@object-format=sha256"}:
            raise RefusedError("the bundle wants a capability that is not allowed")
    ids = [line.partition(b" ")[0] for line in lines[1:]]
    prerequisites = [oid[1:] for oid in ids if oid.startswith(b"-")]
    heads = [oid for oid in ids if not oid.startswith(b"-")]
    if len(heads) != 1:
        raise RefusedError(f"the bundle carries {len(heads)} refs, not one")
    if not all(OID.fullmatch(oid) for oid in (*heads, *prerequisites)):
        raise RefusedError("the bundle's header holds something that is no object id")
    if rest[:4] != b"PACK" or len(rest) < 12:
        raise RefusedError("the bundle holds no pack")
    return BundleHeader(
        heads[0].decode(),
        tuple(oid.decode() for oid in prerequisites),
        len(text) + 2,
        int.from_bytes(rest[8:12], "big"),
    )


def read_exactly(file: FileIO, count: int) -> bytes:
    """Up to `count` bytes from the start, fewer only at the end of the file."""
    file.seek(0)
    data = b""
    while len(data) < count and (chunk := file.read(count - len(data))):
        data += chunk
    return data
