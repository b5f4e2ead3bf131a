"""Small records that factories share as refs of the project's repository, read without trust."""

import json
import logging
import re
from typing import TypeVar

from ironworks.core.errors import RefusedError
from ironworks.core.models import Model
from ironworks.git.depot import Depot

MAX_BYTES = 4 * 1024 * 1024
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,78}[a-z0-9])?")
RETRIES = 5

Read = TypeVar("Read", bound=Model)
log = logging.getLogger(__name__)


def record_ref(folder: str, name: str) -> str:
    """The ref a record lives at. RefusedError for a name that could lead elsewhere."""
    if not NAME.fullmatch(name):
        raise RefusedError(
            f"{name!r} cannot name a record", hint="use a-z, 0-9 and '-', at most 80 characters"
        )
    return f"refs/ironworks/{folder}/{name}"


def commit_message(depot: Depot, oid: str) -> bytes | None:
    """The message of a commit in the repository; None if `oid` is none there."""
    commit = _content(depot, oid, b"commit")
    return None if commit is None else commit.partition(b"\n\n")[2]


def file_in(depot: Depot, oid: str, path: str) -> bytes | None:
    """A file of a commit in the repository; None if there is none."""
    return _content(depot, f"{oid}:{path}", b"blob")


def parsed(kind: type[Read], data: bytes | None, place: str) -> Read | None:
    """A record, or None, with a warning, for whatever somebody put in its place."""
    try:
        if data is not None:
            return kind.model_validate(json.loads(data))
    except (ValueError, RecursionError):
        pass
    log.warning("%s is not a record of ours: ignored", place)
    return None


def encoded(record: Model) -> bytes:
    """What `parsed` reads back, in ASCII, whatever a text stands for. RefusedError when it is too large."""
    data = json.dumps(record.model_dump(mode="json"), sort_keys=True, indent=1).encode("ascii")
    if len(data) > MAX_BYTES:
        raise RefusedError(f"a record of {len(data)} bytes is larger than {MAX_BYTES}")
    return data


def _content(depot: Depot, name: str, kind: bytes) -> bytes | None:
    # Straight from the repository: what is read often should not have to be fetched first.
    git = depot.repository.git
    found = git.head("cat-file", "--batch", stdin=name.encode("ascii") + b"\n", max_bytes=MAX_BYTES + 200)
    header, _, content = found.partition(b"\n")
    facts = header.split(b" ")
    if len(facts) != 3 or facts[1] != kind or int(facts[2]) > MAX_BYTES:
        return None
    return content[: int(facts[2])]
