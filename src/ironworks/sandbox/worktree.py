"""Runs inside a sandbox, `python3 -I -c THIS JSON`, with nothing but the standard library and git.

It makes the work tree, and captures it whatever state an agent left it in. Nothing of the agent's `.git` is believed
or run: git works in a repository of its own, from which what the agent committed is imported only if it is sound.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

GIT = shutil.which("git", path="/usr/bin:/bin:/usr/local/bin") or "git"
HARDENED = (
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.quotePath=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
)
# Disk bytes are blob bytes: no attribute of the repository may convert them.
NEUTRAL = b"* -text -eol -crlf -ident -filter -working-tree-encoding\n"
NAME, EMAIL = "Ironworks worker", "worker@localhost"
IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
HISTORY_TIMEOUT_S = 120
IGNORE_TIMEOUT_S = 60
MAX_NOTES = 50
FILE, EXECUTABLE, SYMLINK, GITLINK, FOLDER = "100644", "100755", "120000", "160000", "40000"


class Failed(Exception):
    """What is told to the host in place of a result."""


class Git:
    """git on one git directory, with a clean environment."""

    def __init__(self, git_dir: bytes) -> None:
        self.env = {
            b"PATH": b"/usr/bin:/bin:/usr/local/bin",
            b"HOME": b"/nonexistent",
            b"LC_ALL": b"C",
            b"GIT_CONFIG_NOSYSTEM": b"1",
            b"GIT_CONFIG_GLOBAL": b"/dev/null",
            b"GIT_ATTR_NOSYSTEM": b"1",
            b"GIT_TERMINAL_PROMPT": b"0",
            b"GIT_NO_LAZY_FETCH": b"1",
            b"GIT_NO_REPLACE_OBJECTS": b"1",
            b"GIT_LITERAL_PATHSPECS": b"1",
            b"GIT_DEFAULT_REF_FORMAT": b"files",
            b"GIT_DIR": git_dir,
        }

    def call(self, *args, stdin=b"", stdout=None, env=None, cwd=b"/", timeout_s=600):  # type: ignore[no-untyped-def]
        """(exit code, stdout, stderr); a time-out counts as exit code -1."""
        argv = [GIT, *(flag for setting in HARDENED for flag in ("-c", setting)), *args]
        source = {"stdin": stdin} if hasattr(stdin, "fileno") else {"input": stdin}
        try:
            done = subprocess.run(
                argv,
                **source,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.env, **(env or {})},
                cwd=cwd,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return -1, b"", b"no answer in time"
        return done.returncode, done.stdout or b"", done.stderr

    def run(self, *args, **options) -> bytes:  # type: ignore[no-untyped-def]
        code, out, err = self.call(*args, **options)
        if code != 0:
            raise Failed("git %s: %s" % (args[0], err[-1000:].decode("utf-8", "replace").strip()))
        return out
