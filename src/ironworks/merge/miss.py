"""What a proof says when something is missing."""

from typing import NamedTuple


class Miss(NamedTuple):
    """Something that a merged file should have, or should not have."""

    what: str
    fatal: bool = True
