"""Grading: a suite that no agent has ever seen, kept outside of the repository, run on one commit."""

import asyncio
import os
import posixpath
import stat
from pathlib import Path

from ironworks.core.errors import ConfigError
from ironworks.core.report import Grade
from ironworks.core.settings import TestSettings
from ironworks.verify.suite import Suites

INSIDE = "/run/ironworks/hidden"
"""Where the suite is in the sandbox: not in the tree that it judges."""
MAX_FILES = 2_000
MAX_BYTES = 64_000_000


async def grade(suites: Suites, commit: str, folder: Path, command: str, *, name: str) -> Grade:
    """What the suite in `folder` says of `commit`, in sandbox `name`. One that cannot be used grades nothing.

    `command`: with `{hidden}` for the folder and `{junit}` for the report; empty = the project's first one,
    with the folder after it. ConfigError for a folder that cannot be used, SandboxError for a dead sandbox.
    """
    try:
        files = await asyncio.to_thread(_contents, folder)
    except OSError as error:
        raise ConfigError(
            f"hidden_tests: {error.filename} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    first = suites.tests[0]
    words = (command or f"{first.command} {{hidden}}").replace("{hidden}", INSIDE)
    hidden = Suites(
        suites.backend,
        suites.depot,
        tests=(TestSettings(name="hidden", command=words, timeout_s=first.timeout_s, env=first.env),),
        base=suites.base,
        template=suites.template,
        services=suites.services,
    )
    run = await hidden.run(commit, name=name, files=files)
    tests = {} if run.problem else run.tests
    return Grade(
        commit=commit,
        passed=sum(outcome == "passed" for outcome in tests.values()),
        failed=sum(outcome in {"failed", "error"} for outcome in tests.values()),
        total=len(tests),
        tests=tests,
        problem=f"{run.problem}\n{run.log[-2000:]}".strip() if run.problem else "",
    )


def _contents(folder: Path) -> dict[str, bytes]:
    """Every regular file below `folder`, by its path inside. Links are left out: they may lead anywhere."""
    found: dict[str, bytes] = {}
    size = 0
    if not folder.is_dir():
        raise ConfigError(f"hidden_tests: there is no folder {folder}", hint="name an existing folder")
    for root, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name not in {"__pycache__", ".git"})
        for name in sorted(names):
            path = Path(root, name)
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            size += path.stat().st_size
            if size > MAX_BYTES or len(found) >= MAX_FILES:
                raise ConfigError(
                    f"hidden_tests: {folder} holds more than {MAX_FILES} files or {MAX_BYTES} bytes"
                )
            found[posixpath.join(INSIDE, path.relative_to(folder).as_posix())] = path.read_bytes()
    return found


def _refuse(error: OSError) -> None:
    """Half a suite would be a better grade than the whole."""
    raise error
