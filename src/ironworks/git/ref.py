"""Names of refs: which are valid, and which belong to the depot alone."""

import re

from ironworks.core.errors import RefusedError

MIRRORED = ("refs/heads/ironworks/", "refs/ironworks/")
"""Namespaces of the repository that the depot mirrors. What is not in the repository disappears from them."""
REF = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.lock)(?<!\.))+")


def is_ref(name: str) -> bool:
    """Whether git would store a full ref name, and it is not a pattern."""
    return REF.fullmatch(name) is not None


def checked(ref: str) -> str:
    """The same full ref name. RefusedError unless `is_ref`."""
    if not is_ref(ref):
        raise RefusedError(f"{ref!r} is no ref name")
    return ref


def own(ref: str) -> str:
    """A ref name for use inside the depot only. RefusedError where the next `sync` would prune it."""
    if checked(ref).startswith(MIRRORED):
        raise RefusedError(f"{ref} is mirrored from the repository: push it there")
    return ref
