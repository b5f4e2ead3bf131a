"""Finds credentials by their shape, so that none is published with a branch."""

import re

_SHAPES = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "a GitLab token": rb"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": rb"\bxox[abeoprs]-[A-Za-z0-9-]{20,}",
    "a Google key": rb"\bAIza[A-Za-z0-9_-]{35}",
    "a model provider's key": rb"\bsk-(?:ant-|proj-|or-)[A-Za-z0-9_-]{20,}|\bsk-[A-Za-z0-9]{40,}",
    "a Stripe key": rb"\b[rs]k_live_[A-Za-z0-9]{20,}",
    "a package index token": rb"\b(?:pypi-AgE[A-Za-z0-9_-]{30,}|npm_[A-Za-z0-9]{36})",
}
_SHAPE = re.compile(b"|".join(b"(%b)" % pattern for pattern in _SHAPES.values()))
_KINDS = tuple(_SHAPES)


def secrets_added(old: bytes, new: bytes) -> list[tuple[int, str]]:
    """Line number and kind of every credential in a line `old` did not have; never the credential itself."""
    known = frozenset(old.splitlines())
    return [
        (number, _KINDS[found.lastindex - 1])
        for number, line in enumerate(new.splitlines(), 1)
        if line not in known and (found := _SHAPE.search(line)) and found.lastindex
    ]
