"""The seams that have more than one implementation, as Protocols with their contracts."""

import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pydantic import Field

from ironworks.core.models import AgentStage, ExecResult, Issue, Model, PullRequest
from ironworks.core.settings import AgentSettings

GATEWAY_PORT = 3128
"""TCP port on the sandbox's own 127.0.0.1 behind which the gateway answers."""
WORK_DIR = "/work"
"""Where the repository is, inside every sandbox."""

Capability = Literal[
    "create",
    "pause",
    "usage",
    "memory_limit",
    "pids_limit",
    "cpu_limit",
    "disk_limit",
    "live_snapshot",
    "mounts",
    "listener",
    "transparent",
    "detached",
    "network_policy",
    "headers",
]
"""What a backend may be able to do here, always found out by doing it:

- create: make sandboxes at all. Without it nothing else holds.
- pause, usage, and the limits: as the calls and the fields of `SandboxSpec` of that name.
- live_snapshot: `snapshot(live=True)`; the sandbox goes on.
- mounts: show host folders inside.
- listener: the gateway's port is passed out to us; nothing else leads out of the sandbox.
- transparent: also programs that know nothing of proxies come to the listener.
- detached: `exec(key=...)` outlives this process; the same key joins it again.
- network_policy: the backend itself lets nothing out but to `SandboxSpec.hosts`.
- headers: the backend itself attaches `SandboxSpec.headers` on the way out.
"""
OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


class Mount(Model):
    """A host folder or file shown read-only inside a sandbox. Both paths absolute."""

    host: str
    inside: str


class SandboxSpec(Model):
    """What to make. `name` is deterministic, so that a restart finds what a crash left."""

    name: str
    """`[a-z0-9-]{1,100}`"""
    snapshot: str | None = None
    """Snapshot to boot from; None = an empty `/work`."""
    env: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    cpus: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    """Where nothing better is to be had the disk is watched: it may grow past this for a moment."""
    image: str = ""
    """What to boot where there is no snapshot: a container image, a hosted runtime. Empty = the usual one."""
    transparent: bool = False
    """Let programs that ignore proxy variables reach the gateway as well."""
    hosts: tuple[str, ...] = ()
    """Names and `*.` names that a backend with `network_policy` lets through; others have the gateway."""
    headers: dict[str, dict[str, str]] = Field(default={}, repr=False)
    """Host → header → secret value, for a backend with `headers`; never shown inside, never in a log."""


class SandboxInfo(Model):
    """One line of a listing."""

    name: str
    snapshot: str | None
    """On what its disk rests."""
    running: bool
    disk_bytes: int
    created_at: datetime


class SnapshotInfo(Model):
    """One line of a listing."""

    name: str
    below: str | None
    """The snapshot it rests on."""
    disk_bytes: int
    """Its own layer only; 0 where the host cannot tell."""
    created_at: datetime


class SandboxUsage(Model):
    """Zeroes where the host cannot tell."""

    cpu_s: float = 0.0
    memory_peak_bytes: int = 0
    disk_bytes: int = 0
    pids_refused: int = 0
    """How often it wanted one process more than it may have, since it was booted."""
    oom_kills: int = 0
    """How many of its processes were ended since it was booted because it wanted too much memory."""
    disk_kills: int = 0
    """How often all its processes were ended since it was booted because its disk had grown too large."""


class Ways(NamedTuple):
    """How programs that know no proxy come to the gateway: sockets in the sandbox's network namespace, where
    every IPv4 address is the sandbox's own."""

    http: socket.socket
    """Listening on port 80 of every address."""
    tls: socket.socket
    """Listening on port 443 of every address."""
    names: socket.socket
    """Datagrams to the name server, 127.0.0.1:53."""


class HostCheck(Model):
    """One thing that this host must have for sandboxes. `fix` is what to do when it lacks it."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


class Sandbox(Protocol):
    """A running isolated place. Nothing in it can reach anything but the gateway's listener."""

    name: str

    @property
    def listener(self) -> socket.socket | None:
        """Listening TCP socket that lives in the sandbox's network namespace at 127.0.0.1:GATEWAY_PORT.

        Whoever connects to it is this sandbox: that is its identity. None without the capability `listener`.
        """
        ...

    @property
    def ways(self) -> Ways | None:
        """More listeners of the same identity, in a sandbox made `transparent`; None in others."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORK_DIR,
        timeout_s: float,
        on_output: OnOutput | None = None,
        stdout_to: Path | None = None,
        max_output: int = 4_000_000,
        key: str = "",
    ) -> ExecResult:
        """Run one command in a session of its own and wait for it.

        `env` is added to the sandbox's. `on_output` sees every chunk as it comes. At most `max_output` bytes
        of each stream are kept (the end of them); `stdout_to` sends stdout straight to a host file instead.
        At `timeout_s`, or when the awaiting task is cancelled, the command's whole session is killed. A
        grandchild that keeps the pipe open does not delay the return by more than a second. Where the backend
        is `detached`, a command with a `key` goes on when this process dies, and the next call with the same
        key joins it instead of starting it again; elsewhere a key changes nothing. Raises SandboxError when
        the sandbox died.
        """
        ...

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file (parents made). Resolved inside: a symlink planted there cannot reach the host."""
        ...

    async def get(self, path: str, *, max_bytes: int) -> bytes:
        """Read a regular file; MissingError if there is none, RefusedError if it is larger."""
        ...

    async def kill_all(self) -> None:
        """End every process but the sandbox's own pid 1."""
        ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def usage(self) -> SandboxUsage: ...

    async def stop(self) -> None:
        """End all its processes; its disk stays, `create` of the same name continues on it. Idempotent."""
        ...


class SandboxBackend(Protocol):
    """Makes sandboxes and keeps snapshots."""

    def capabilities(self) -> frozenset[Capability]:
        """What this host can really do, found out by doing it."""
        ...

    def doctor(self) -> list[HostCheck]:
        """What this host lacks, found out by trying, in the order in which to repair. Blocks for a moment."""
        ...

    def content(self) -> str:
        """What its sandboxes hold before anything is done in them, as a word that changes with it. Blocks."""
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Boot. If a disk of that name is left over, continue on it (its snapshot is then not applied anew);
        if processes of it are left over, end them first, unless a command with a `key` is at work there that
        can be joined. Without the capability `mounts` a backend that can copies the folders in instead."""
        ...

    async def snapshot(self, sandbox: Sandbox, name: str, *, live: bool = False) -> str:
        """Stop `sandbox` and freeze its disk as snapshot `name`. Idempotent: an existing name wins.

        `live`: it is only held for as long as that takes, and goes on; CapabilityError without
        `live_snapshot`.
        """
        ...

    async def has_snapshot(self, name: str) -> bool: ...

    async def has_disk(self, name: str) -> bool: ...

    async def sandboxes(self) -> list[SandboxInfo]:
        """Every disk there is, by name."""
        ...

    async def snapshots(self) -> list[SnapshotInfo]:
        """By name."""
        ...

    async def remove_snapshot(self, name: str) -> None:
        """No error if there is none; BusyError while a disk or another snapshot rests on it."""
        ...

    async def destroy(self, name: str) -> None:
        """End it and remove its disk; no error if there is none."""
        ...

    async def collect(self, keep: frozenset[str]) -> int:
        """Remove left-over disks of sandboxes not in `keep`; how many went."""
        ...

    async def close(self) -> None:
        """Stop everything this backend started."""
        ...


class Transcript(Protocol):
    """Where an attempt's raw output and normalised events go. Bounded, append-only files."""

    def raw(self, stream: Literal["stdout", "stderr"], data: bytes) -> None: ...

    def event(self, kind: str, **data: object) -> None: ...


class AgentTask(Model):
    """Everything an agent is told for one exchange."""

    stage: AgentStage
    issue: Issue
    prompt: str
    input: dict[str, object] = {}
    """The stage's input: acceptance list, baseline, last round's findings; for review the diff and the
    verification; for resolve the file's base, ours, theirs and both issues."""
    settings: AgentSettings
    session: str | None = None
    """Continue this session instead of starting one; None at first."""
    env: dict[str, str] = {}
    """Provider base URLs and dummy keys, as the gateway gives them."""


class AgentAnswer(Model):
    """How an exchange ended. `handoff` is the raw JSON text, not yet validated."""

    ending: Literal["exited", "timeout", "silent", "cancelled"]
    exit_code: int | None = None
    handoff: str | None = None
    session: str | None = None
    detail: str = ""
    """For people: the last lines of what it printed."""
    duration_s: float = 0.0


class Agent(Protocol):
    """Drives one kind of coding agent inside a sandbox. Holds no state between exchanges."""

    name: str

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What its sandboxes must show it; ConfigError when that is not installed."""
        ...

    async def run(self, sandbox: Sandbox, task: AgentTask, transcript: Transcript) -> AgentAnswer:
        """One exchange. Never raises for what the agent does; SandboxError when the sandbox died."""
        ...


class Forge(Protocol):
    """Where issues and pull requests live. All calls may block; none merges."""

    name: str

    def issues(self) -> list[Issue]:
        """Every issue, closed ones included, frozen as they are now, in written order."""
        ...

    def pulls(self) -> list[PullRequest]: ...

    def pull(self, id: str) -> PullRequest | None: ...

    def put_pull(self, pull: PullRequest, *, expected: PullRequest | None) -> bool:
        """Create (`expected=None`) or replace by compare-and-set. False: it is not what was expected."""
        ...

    def ask(self, issue: str, questions: Sequence[str]) -> None:
        """Make a factory's questions visible where the issue is. Idempotent."""
        ...
