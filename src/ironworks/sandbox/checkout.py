"""Brings commits into a sandbox's work tree and captures what is there; no git of the host sees it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from ironworks.core.errors import SandboxError
from ironworks.core.models import Model, Sha
from ironworks.core.ports import WORK_DIR, Sandbox
from ironworks.git.depot import Depot

BASE_GIT = "/ironworks/base.git"
HOME = "/home/agent"
PYTHON = "/usr/bin/python3"
TIMEOUT_S = 900
MODULES = ("git", "placing", "head", "walk", "capturing", "verbs")
LOADER = """
import sys, types
for name, source in {sources!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main(sys.argv[1])
"""
MAX_BYTES = 512 * 1024 * 1024


class Capture(Model):
    """What was found in a work tree, now in the depot.

    `ghost`: the disk held more than the worker had committed. `notes` say, for people, what could not be
    kept as it was. Nothing done = `commit` is the base.
    """

    commit: Sha
    tree: Sha
    ghost: bool
    notes: tuple[str, ...] = ()


async def clone_base(sandbox: Sandbox, *, base: str) -> None:
    """Make `/work` a clone of `/ironworks/base.git` at `base`, on branch `work`. SandboxError if it fails."""
    await run(sandbox, {"verb": "place", "base": base, "commit": base, "built": []}, b"")


async def settle(sandbox: Sandbox, *, base: str) -> tuple[str, ...]:
    """After the project's own `prepare` commands ran in a clone of `base`: what they left there.

    What they added without its being ignored is no worker's change. It is answered as patterns, in the form
    of a `.gitignore`, for `place` and `capture`; what they did to tracked files is undone.
    """
    answer = await run(sandbox, {"verb": "settle", "base": base}, b"")
    try:
        return _Settled.model_validate(answer).built
    except ValidationError as error:
        raise SandboxError(f"the sandbox gave no sensible list of what was built: {error}") from error


class _Settled(Model):
    built: tuple[str, ...]


async def place(sandbox: Sandbox, depot: Depot, commit: str, *, base: str, built: Sequence[str] = ()) -> None:
    """Check `commit`, which builds on `base`, out in `/work` on branch `work`.

    Ignored files (installed dependencies) stay, and what matches `built`; untracked ones go, and so does what
    an agent did to `.git`.
    """
    bundle = b"" if commit == base else await asyncio.to_thread(bundled, depot, commit, base)
    await run(sandbox, {"verb": "place", "base": base, "commit": commit, "built": list(built)}, bundle)


async def unlock(sandbox: Sandbox) -> None:
    """Remove the locks that a killed git has left in `/work/.git`; no process may be at work there."""
    find = ("find", f"{WORK_DIR}/.git", "-name", "*.lock", "-type", "f", "-delete")
    await sandbox.exec(find, cwd="/", timeout_s=TIMEOUT_S)


async def capture(
    sandbox: Sandbox,
    depot: Depot,
    *,
    base: str,
    ref: str,
    title: str = "Work of an agent",
    built: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
) -> Capture:
    """Bring everything in `/work` that is tracked or not ignored into the depot, and point `ref` there.
    What matches `built` counts as ignored.

    Ends every process of the sandbox first. Works whatever state `.git` is in: commits that build on `base`
    are kept, other history is squashed onto it, and what is not committed becomes one more commit, called
    `title`. The same
    disk gives the same commit. RefusedError when the depot refuses the work, SandboxError when it cannot be
    read; the disk stays as it is.
    """
    await sandbox.kill_all()
    with depot.folder() as folder:
        bundle = folder / "bundle"
        task = {
            "verb": "capture",
            "base": base,
            "home": HOME,
            "max_bytes": max_bytes,
            "built": list(built),
            "title": title,
        }
        answer = await run(sandbox, task, b"", stdout_to=bundle)
        try:
            found = Capture.model_validate_json(json.dumps(answer))
        except ValidationError as error:
            raise SandboxError(f"the sandbox gave no sensible capture: {error}") from error
        if found.commit == base:
            await asyncio.to_thread(depot.set_ref, ref, base)
            return found
        commit = await asyncio.to_thread(depot.admit, bundle, base=base, ref=ref, max_bytes=max_bytes)
    tree = await asyncio.to_thread(depot.tree_of, commit)
    return found.model_copy(update={"commit": commit, "tree": tree})


async def run(
    sandbox: Sandbox, task: Mapping[str, object], stdin: bytes, *, stdout_to: Path | None = None
) -> dict[str, object]:
    """Run a verb of `inside` in the sandbox; its answer is the last line of stderr."""
    words = json.dumps({**task, "work": WORK_DIR, "base_git": BASE_GIT})
    argv = (PYTHON, "-I", "-c", program(), words)
    result = await sandbox.exec(argv, stdin=stdin, cwd="/", timeout_s=TIMEOUT_S, stdout_to=stdout_to)
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1])
        failure = answer.get("failed")
    except (IndexError, ValueError, AttributeError):
        failure = "no answer"
    if failure is not None or not result.ok:
        reason = f"{failure}: {result.text()}" if failure == "no answer" else str(failure)
        shown = reason.encode("utf-8", "replace").decode("utf-8")
        raise SandboxError(f"{task['verb']} failed in sandbox {sandbox.name}: {shown}")
    return dict(answer)


def bundled(depot: Depot, commit: str, base: str) -> bytes:
    with depot.folder() as folder:
        path = folder / "bundle"
        depot.bundle(commit, path, exclude=[base])
        return path.read_bytes()


@cache
def program() -> str:
    """The modules of `inside` as one text for `python3 -c`: an image need not have anything of ours."""
    folder = Path(__file__).with_name("inside")
    sources = {
        f"ironworks.sandbox.inside.{name}": (folder / f"{name}.py").read_text("utf-8") for name in MODULES
    }
    return LOADER.format(sources=sources)
