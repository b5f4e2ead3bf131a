"""One emulated box: what the service knows of it, its disk, and when its processes live."""

import asyncio
import contextlib
import shlex
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from ironworks.core.clock import Clock
from ironworks.core.errors import SandboxError
from ironworks.sandbox.local.tree import remove_tree
from ironworks.testing.upstash.egress import Egress
from ironworks.testing.upstash.fault import Creation
from ironworks.testing.upstash.http import ApiError
from ironworks.testing.upstash.jail import (
    HOME,
    WORKSPACE,
    Ending,
    Jail,
    basic_environment,
    copy_root,
    make_root,
)
from ironworks.testing.upstash.thread import in_thread

BLOCKED_ENV = frozenset({"PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "NODE_OPTIONS"})
"""What a caller cannot set; dropped without a word."""
PRICE_USD: Mapping[str, float] = {"small": 0.10, "medium": 0.20, "large": 0.40}
"""For one hour of a CPU that works, by size."""
MAX_RECORDS = 1000
SHOWN = ("name", "size", "keep_alive", "model", "agent", "runtime", "browser", "skills", "ephemeral")


class Snapshot:
    """A frozen disk. It outlives its box."""

    def __init__(self, id: str, name: str, box: "Box", root: Path, now: int) -> None:
        self.id = id
        self.name = name
        self.box_id = box.id
        self.root = root
        self.status = "creating"
        self.polls = 0
        """Looks at it that still find it `creating`."""
        self.size_bytes = 0
        self.created_at = now
        self.settings: dict[str, Any] = {
            key: box.body[key] for key in ("model", "agent", "custom_runner") if key in box.body
        }

    def public(self) -> dict[str, object]:
        names = ("id", "name", "box_id", "status", "size_bytes", "created_at")
        return {name: getattr(self, name) for name in names}


class Box:
    """`creating → idle ⇄ running, paused, error, deleted`. Used from one event loop."""

    def __init__(
        self, id: str, body: dict[str, Any], root: Path, clock: Clock, egress: Egress, creation: Creation
    ) -> None:
        self.id = id
        self.body = body
        self.root = root
        self.labels: list[str] = list(body.get("labels") or [])
        self.policy: dict[str, Any] = body.get("network_policy") or {"mode": "allow-all"}
        self.attach_headers: dict[str, dict[str, str]] = body.get("attach_headers") or {}
        self.git = {
            "git_user_name": body.get("git_user_name") or "Upstash Box",
            "git_user_email": body.get("git_user_email") or "box@upstash.com",
        }
        self.init_command: str = body.get("init_command") or ""
        self.team_env: Mapping[str, str] = {}
        self.mirrors: Mapping[str, Path] = {}
        self.git_rules: Mapping[str, str] = {}
        self.runs: deque[dict[str, Any]] = deque(maxlen=MAX_RECORDS)
        self.logs: deque[dict[str, Any]] = deque(maxlen=MAX_RECORDS)
        self.previews: dict[int, dict[str, Any]] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.session_id = ""
        self.tokens = {"total_input_tokens": 0, "total_output_tokens": 0, "total_prompts": 0}
        self._clock = clock
        self._egress = egress
        self._creation = creation
        self._state = "creating"
        self._polls = 0
        self._working = 0
        self._jail: Jail | None = None
        self._cpu_ns = 0
        self._changing = asyncio.Lock()
        self._proxy: asyncio.Task[None] | None = None
        self._due_s: float | None = None
        self._target = ""
        self.created_at = self.updated_at = self.now()
        self._ready_s = clock.monotonic_s() + creation.delay_s
        self.active_s = clock.monotonic_s()
        self.expires_at = self.created_at + int(body.get("ttl") or 259_200) if body.get("ephemeral") else 0

    def now(self) -> int:
        return int(self._clock.now().timestamp())

    @property
    def status(self) -> str:
        return "running" if self._state == "idle" and self._working else self._state

    @property
    def keep_alive(self) -> bool:
        return bool(self.body.get("keep_alive"))

    def look(self) -> None:
        """Somebody asks how it is: a box in the making gets nearer to its end."""
        self._polls += 1
        self.settle(looked=True)

    def settle(self, *, looked: bool = False) -> None:
        """Bring to be what is due by now."""
        if self._state != "creating" or self._creation.ends == "never":
            return
        if self._clock.monotonic_s() < self._ready_s or self._polls < self._creation.polls + (
            1 if looked else 0
        ):
            return
        self._state = self._creation.ends
        self.active_s = self._clock.monotonic_s()

    async def make(self, source: Path | None) -> None:
        """The disk, new or a copy. Then as `Creation` says."""
        self.root.parent.mkdir(parents=True)
        if source is None:
            await in_thread(make_root, self.root)
        else:
            await in_thread(copy_root, source, self.root)
        self.settle()

    async def public(self) -> dict[str, Any]:
        """As the API shows it: never the environment's or the attached headers' values."""
        cpu_ns = await self.cpu_ns()
        shown = {key: self.body[key] for key in SHOWN if self.body.get(key) is not None}
        skills = shown.pop("skills", None)
        if skills is not None:
            shown["enabled_skills"] = skills
        if self.expires_at:
            shown["expires_at"] = self.expires_at
        return {
            "runtime": "node",
            "size": "small",
            **shown,
            "id": self.id,
            "status": self.status,
            "labels": self.labels,
            "network_policy": self.policy,
            "customer_id": "customer",
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "last_activity_at": int(self.updated_at),
            "total_cpu_ns": cpu_ns,
            "total_compute_cost_usd": self.cost_usd(cpu_ns),
            "total_token_cost_usd": 0.0,
            "use_managed_key": False,
            **self.tokens,
        }

    def cost_usd(self, cpu_ns: int) -> float:
        return cpu_ns / 3.6e12 * PRICE_USD.get(str(self.body.get("size") or "small"), PRICE_USD["small"])

    async def cpu_ns(self) -> int:
        """Of every process it ever had."""
        jail = self._jail
        if jail is None or jail.closed:
            return self._cpu_ns
        try:
            return self._cpu_ns + int((await jail.call("usage"))["cpu_ns"])
        except (OSError, RuntimeError, TimeoutError):
            return self._cpu_ns

    async def processes(self) -> int:
        jail = self._jail
        return 0 if jail is None or jail.closed else int((await jail.call("usage"))["processes"])

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        asked = {**self.team_env, **(self.body.get("env_vars") or {}), **(more or {})}
        allowed = {key: str(value) for key, value in asked.items() if key not in BLOCKED_ENV}
        return {**basic_environment(), **allowed, **self.git_rules, "HOME": HOME}

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[Jail]:
        """While something is asked of it: awake and `running`; its idle time begins anew afterwards."""
        jail = await self.awake()
        self._working += 1
        self.touch()
        try:
            yield jail
        finally:
            self._working -= 1
            self.touch()

    def touch(self) -> None:
        self.active_s = self._clock.monotonic_s()
        self.updated_at = self.now()

    async def awake(self) -> Jail:
        async with self._changing:
            if self._state not in {"idle", "paused"}:
                raise ApiError(409, f"the box is {self._state}")
            if self._jail is None or self._jail.closed:
                await self._boot()
            self._state = "idle"
            assert self._jail is not None
            return self._jail

    async def _boot(self) -> None:
        if self._jail is not None:
            await self._halt()
        self._jail = await Jail.start(self.root, self.id, self.mirrors)
        self._proxy = asyncio.ensure_future(self._egress.serve(self._jail.listener, self))
        self.log("system", "box started")
        if self.init_command:
            argv = ["sh", "-c", f"setsid nohup sh -c {shlex.quote(self.init_command)} >/dev/null 2>&1 &"]
            await self._jail.run(argv, self.environment(), WORKSPACE)

    async def _halt(self) -> None:
        jail, self._jail = self._jail, None
        if jail is None:
            return
        if not jail.closed:
            with contextlib.suppress(RuntimeError, TimeoutError):
                self._cpu_ns += int((await jail.call("usage"))["cpu_ns"])
        if self._proxy:
            self._proxy.cancel()
        await jail.stop()

    async def pause(self) -> None:
        """Its processes end; its disk stays."""
        async with self._changing:
            if self._state == "idle":
                await self._halt()
                self._state = "paused"
                self.previews.clear()
                self.updated_at = self.now()
                self.log("system", "box paused")

    async def resume(self) -> None:
        await self.awake()
        self.touch()

    def later(self, target: str, delay_s: float) -> None:
        """Pause or resume after a while of the emulator's clock."""
        self._target, self._due_s = target, self._clock.monotonic_s() + delay_s

    async def tick(self, idle_pause_s: float) -> None:
        """What time alone brings about."""
        self.settle()
        now_s = self._clock.monotonic_s()
        if self._due_s is not None and now_s >= self._due_s:
            self._due_s = None
            await (self.pause() if self._target == "paused" else self.resume())
        idle = self._state == "idle" and not self._working and not self.keep_alive and not self.expires_at
        if idle and now_s - self.active_s >= idle_pause_s:
            await self.pause()

    @property
    def expired(self) -> bool:
        return bool(self.expires_at) and self.now() >= self.expires_at

    async def copy_to(self, target: Path) -> None:
        """A copy of the disk as it is at one moment: the processes stand still for it."""
        async with self._changing:
            if self._state not in {"idle", "paused"}:
                raise SandboxError(f"the box is {self._state}")
            jail = self._jail if self._jail is not None and not self._jail.closed else None
            if jail:
                await jail.call("hold")
            try:
                target.parent.mkdir(parents=True)
                await in_thread(copy_root, self.root, target)
            finally:
                if jail and not jail.closed:
                    await jail.call("release")

    async def delete(self) -> None:
        async with self._changing:
            await self._halt()
            self._state = "deleted"
            if self.root.parent.exists():
                await in_thread(remove_tree, self.root.parent)

    def log(self, source: str, message: str, level: str = "info") -> None:
        self.logs.append(
            {"timestamp": self.now(), "level": level, "source": source, "message": message[:2000]}
        )

    def record(self, kind: str, prompt: str, ending: Ending, duration_ms: float) -> dict[str, Any]:
        """Add to the list of runs."""
        run = {
            "id": f"run_{len(self.runs) + 1:04d}_{self.id}",
            "box_id": self.id,
            "customer_id": "customer",
            "type": kind,
            "status": "completed" if ending.exit_code == 0 else "failed",
            "prompt": prompt[:2000],
            "input_tokens": 0,
            "output_tokens": 0,
            "cost_usd": 0.0,
            "cpu_ns": ending.cpu_ns,
            "compute_cost_usd": self.cost_usd(ending.cpu_ns),
            "memory_peak_bytes": ending.memory_peak_bytes,
            "duration_ms": duration_ms,
            "created_at": self.now(),
            "completed_at": self.now(),
        }
        self.runs.append(run)
        self.log("user", prompt)
        return run
