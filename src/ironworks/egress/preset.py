"""Presets: the package index that this machine's client is configured for, found out by asking the client."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ironworks.egress.host import authority
from ironworks.egress.refusal import Refusal

Place = tuple[str, int]
PresetLookup = Callable[[str], Awaitable[Sequence[Place]]]

_TIMEOUT_S = 60


@dataclass(frozen=True)
class Question:
    """A command of a package client that makes it name the URLs it uses, and how they look in its output."""

    program: str
    arguments: tuple[str, ...]
    urls: re.Pattern[str]
    stdin: str = ""


# A distribution's own pip refuses even a dry run, unless it is told that nobody minds.
_NOTHING_IS_INSTALLED = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
_DRY_RUN = ("install", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir", "-vv", "pip")
_PIP = Question("pip", _DRY_RUN, re.compile(r"(?:^\s*\* |Found link )(https?://\S+)", re.MULTILINE))
_UV = Question(
    "uv", ("pip", "compile", "-", "--no-cache", "-v"), re.compile(r"request for: (https?://\S+)"), "pip\n"
)
_URL = re.compile(r"(https?://\S+)")
_NPM = (
    Question("npm", ("config", "get", "registry"), _URL),
    Question("npm", ("view", "npm", "dist.tarball"), _URL),
)

PRESETS: dict[str, tuple[Question, ...]] = {"pip": (_PIP,), "uv": (_UV,), "npm": _NPM}
"""The index itself and the host its files are on: each client is asked about a package that it surely has."""


class Presets:
    """Answers what a preset stands for, asking the client only once."""

    def __init__(self) -> None:
        self._found: dict[str, asyncio.Task[list[Place]]] = {}

    async def __call__(self, name: str) -> Sequence[Place]:
        """Host and port of each. Refusal when the host's client is absent or names none."""
        if name not in self._found:
            self._found[name] = asyncio.create_task(asyncio.to_thread(_ask, PRESETS[name]))
        # A request that is cancelled must not take the answer from the others.
        found = await asyncio.shield(self._found[name])
        if not found:
            self._found.pop(name, None)
            raise Refusal(502, "preset", f"preset {name!r}: {name} on the host names no package index")
        return found


def places(urls: Iterable[str]) -> list[Place]:
    """Host and port of every http or https URL that has a proper host name."""
    found: dict[Place, None] = {}
    for url in urls:
        try:
            parts = urlsplit(url)
            found[authority(parts.netloc.rpartition("@")[2], 80 if parts.scheme == "http" else 443)] = None
        except (Refusal, ValueError):
            continue
    return list(found)


def _ask(questions: Iterable[Question]) -> list[Place]:
    return places(url for question in questions for url in question.urls.findall(_output(question)))


def _output(question: Question) -> str:
    """What the client prints; nothing when it is absent or takes too long."""
    beside = Path(sys.executable).parent / question.program
    program = shutil.which(question.program) or str(beside)
    try:
        # At the root, so that no project's own configuration counts.
        done = subprocess.run(
            [program, *question.arguments], input=question.stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, text=True, errors="replace", cwd="/", check=False,
            env={**os.environ, **_NOTHING_IS_INSTALLED},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
