"""A repository that is out to harm whoever works on it, the operator it would rob, and traps that tell."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.probe import tries
from tests.e2e.workshop import Workshop

from ironworks.testing.till.repository import make_repository

PROBE = Path(__file__).with_name("probe.py")
IDENTITY = ("-c", "user.name=Mallory", "-c", "user.email=mallory@localhost")
HOOKS = ("pre-receive", "update", "post-receive", "reference-transaction", "pre-push", "post-merge",
         "post-checkout", "pre-commit", "post-commit", "post-update", "push-to-checkout")  # fmt: skip
PROGRAMS = ("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.editor", "core.pager", "gpg.program",
            "diff.external", "core.alternateRefsCommand", "uploadpack.packObjectsHook", "credential.helper",
            "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "merge.evil.driver")  # fmt: skip
# The suite tells what it sees by tests that fail, in names and messages: a suite has no other way out.
TELL = """\
import base64, json, lzma, pathlib, unittest

class TestTell(unittest.TestCase):
    pass

loot = {path.stem: path.read_text() for path in (pathlib.Path.home() / "loot").glob("*.txt")}
said = base64.b64encode(lzma.compress(json.dumps(loot).encode())).decode()
for part in range(0, len(said), 800):
    def tell(self, text=f"<<{part}:{said[part:part + 800]}>>"):
        self.fail(text)
    setattr(TestTell, f"test_{part}", tell)
"""


class Canary:
    """Services of the host that nothing may reach: `touched` says what did."""

    def __init__(self, folder: Path) -> None:
        self.touched: list[str] = []
        self._bound = [self._listen(socket.AF_INET, ("127.0.0.1", 0), "loopback")]
        self.port = int(self._bound[0].getsockname()[1])
        self.path = str(folder / "canary.sock")
        self.nameless = f"canary-{secrets.token_hex(8)}"
        self._bound.append(self._listen(socket.AF_UNIX, self.path, "socket"))
        self._bound.append(self._listen(socket.AF_UNIX, "\0" + self.nameless, "nameless socket"))
        with contextlib.suppress(OSError):
            self._bound.append(self._listen(socket.AF_INET6, ("::1", self.port), "loopback, version 6"))

    def close(self) -> None:
        for bound in self._bound:
            bound.shutdown(socket.SHUT_RDWR)
            bound.close()

    def _listen(self, family: int, address: Any, name: str) -> socket.socket:
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.bind(address)
        bound.listen()
        threading.Thread(target=self._accept, args=(bound, name), daemon=True).start()
        return bound

    def _accept(self, bound: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = bound.accept()
                self.touched.append(name)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nspy-mark-of-the-canary")
                connection.close()


class HostileWorkshop(Workshop):
    """Till, gone bad, and an operator with secrets: `marks` are what nobody else may ever see."""

    def __init__(self, folder: Path, canary: Canary, plan: dict[str, Any], *, more: str = "") -> None:
        self.marks = {name: f"spy-mark-{secrets.token_hex(12)}" for name in ("variable", "file", "env-file")}
        self.secret = folder / "home" / ".ssh" / "secret.txt"
        self.secret.parent.mkdir(parents=True)
        self.secret.write_text(f"- {self.marks['file']}\n", "utf-8")
        repository = make_repository(folder / "repo with a space")
        self.trap = folder / "trap"
        self.trap.write_text(f'#!/bin/sh\necho "$0" >> "{folder}/sprung"\n', "utf-8")
        self.trap.chmod(0o755)
        super().__init__(folder, plan, more=more, repository=repository)
        self.targets = {
            "home": str(folder / "home"), "secret": str(self.secret), "state": str(folder / "state"),
            "folder": str(folder), "port": canary.port, "socket": canary.path, "nameless": canary.nameless,
        }  # fmt: skip

    def environment(self) -> dict[str, str]:
        return super().environment() | {"SPY_VARIABLE": self.marks["variable"]}

    def spoil(self, configuration: str) -> None:
        """Commit the bad content, then set every trap that lies in a repository's own settings."""
        for path in (PROBE, Path(__file__).with_name("planned_agent.py")):
            (self.repository / path.name).write_bytes(path.read_bytes())
        (self.repository / "targets.json").write_text(json.dumps(self.targets), "utf-8")
        (self.repository / "ironworks.toml").write_text(configuration, "utf-8")
        (self.repository / "link-to-secret").symlink_to(self.secret)
        (self.repository / "link-to-home").symlink_to(self.folder / "home")
        (self.repository / ".gitattributes").write_text("*.py filter=evil diff=evil merge=evil\n", "utf-8")
        check = self.repository / "check.py"
        check.write_text(check.read_text("utf-8").replace("[-2000:]", "[-990:]"), "utf-8")
        self.git("add", "-A")
        self.git(*IDENTITY, "commit", "-qm", "Nothing to see here")
        for name in HOOKS:
            (self.repository / ".git" / "hooks" / name).symlink_to(self.trap)
        for name in PROGRAMS:
            self.git("config", name, str(self.trap))

    def sprung(self) -> str:
        """Which of the repository's traps ran. To be asked before this test itself uses git there."""
        told = self.folder / "sprung"
        return told.read_text("utf-8") if told.exists() else ""

    def disarm(self) -> None:
        (self.repository / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n", "utf-8")
        for name in HOOKS:
            (self.repository / ".git" / "hooks" / name).unlink()

    def objects(self) -> Iterator[bytes]:
        """Every object that any ref of the repository or the depot reaches, as git prints it."""
        for folder in (self.repository / ".git", self.folder / "state" / "depot.git"):
            words = ["git", f"--git-dir={folder}"]
            known = {"env": super().environment(), "capture_output": True, "timeout": 60, "check": True}
            yield subprocess.run([*words, "for-each-ref"], **known).stdout  # type: ignore[call-overload]
            yield subprocess.run(
                [*words, "cat-file", "--batch-all-objects", "--batch", "--unordered"],
                **known,  # type: ignore[call-overload]
            ).stdout

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Everything the factory keeps: databases, logs, disks."""
        for folder, _, names in os.walk(self.folder / "state"):
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    yield str(path), path.read_bytes()


def names_of_tries() -> Sequence[str]:
    return sorted(tries(dict.fromkeys(("port", "socket", "nameless"), "")))
