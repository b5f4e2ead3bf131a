import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ironworks.core.errors import RefusedError, SandboxError
from ironworks.core.ports import Mount, Sandbox, SandboxSpec
from ironworks.git.depot import Depot
from ironworks.git.tree import Blob
from ironworks.sandbox.checkout import BASE_GIT, capture, clone_base, place, settle, unlock
from ironworks.sandbox.local.backend import LocalBackend

FILES = {
    "a": Blob(b"one\n"),
    "crlf": Blob(b"one\r\n"),
    "run": Blob(b"#!/bin/sh\n", "100755"),
    "link": Blob(b"a", "120000"),
    ".gitattributes": Blob(b"* text=auto filter=lfs\n*.txt eol=crlf ident\n"),
    ".gitignore": Blob(b"node_modules\n"),
    "new\nline": Blob(b"x"),
    "x.txt": Blob(b"$Id$\n"),
}


class Place:
    """Sandboxes of one project, and its depot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        user = folder / "user.git"
        subprocess.run(
            ["git", "init", "--quiet", "--bare", "--initial-branch=main", user], check=True, timeout=60
        )
        self.depot = Depot(folder / "depot.git", user)
        base = self.depot.commit(self.depot.write_tree(None, FILES), [], "base")
        self.depot.push("refs/heads/main", base, expected=None)
        self.base = self.depot.sync("main")
        self.depot.base_repository(self.base, folder / "base.git")
        self.backend = LocalBackend(folder / "sandboxes")

    async def boot(self, name: str, snapshot: str | None = None) -> Sandbox:
        mount = Mount(host=str(self.folder / "base.git"), inside=BASE_GIT)
        return await self.backend.create(SandboxSpec(name=name, snapshot=snapshot, mounts=(mount,)))

    def commit(self, **files: bytes | None) -> str:
        blobs = {path: None if data is None else Blob(data) for path, data in files.items()}
        return self.depot.commit(self.depot.write_tree(self.base, blobs), [self.base], "work")


@pytest.fixture
async def factory(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    if "create" not in made.backend.capabilities():
        pytest.skip("needs user namespaces and overlays: see `ironworks doctor`")
    yield made
    await made.backend.close()


@pytest.fixture
async def sandbox(factory: Place) -> Sandbox:
    made = await factory.boot("one")
    await clone_base(made, base=factory.base)
    return made


async def sh(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.exec(["sh", "-ec", command], timeout_s=60)
    assert result.ok, result.text()
    return result.stdout.decode("utf-8", "replace").strip()


@pytest.mark.spec("GIT-23")
async def test_a_clone_is_an_ordinary_repository_whose_bytes_are_those_of_the_base(
    factory: Place, sandbox: Sandbox
) -> None:
    assert await sh(sandbox, "git status --porcelain") == ""
    assert await sh(sandbox, "git rev-parse --abbrev-ref HEAD") == "work"
    assert await sh(sandbox, "git rev-parse HEAD origin/base") == f"{factory.base}\n{factory.base}"
    assert await sandbox.get("/work/crlf", max_bytes=100) == b"one\r\n"
    assert await sandbox.get("/work/x.txt", max_bytes=100) == b"$Id$\n"
    assert await sh(sandbox, "stat -c %a run; readlink link; cat 'new\nline'") == "755\na\nx"
    await sh(
        sandbox, "git fetch --quiet origin; echo more >> a; git commit --quiet -am more; git fsck --strict"
    )
    assert await sh(sandbox, "git log -1 --format=%an%ae") == "Ironworks workerworker@localhost"


@pytest.mark.spec("GIT-16")
async def test_what_an_agent_leaves_comes_out_whole(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "echo two > a; git commit -qam mine; printf 'x\\r\\n' > new; rm crlf; chmod -x run")
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert captured.ghost
    assert factory.depot.resolve("refs/attempts/1") == captured.commit
    assert factory.depot.tree_of(captured.commit) == captured.tree
    changes = {change.path: change.status for change in factory.depot.changes(factory.base, captured.commit)}
    assert changes == {"a": "M", "new": "A", "crlf": "D", "run": "M"}
    assert factory.depot.read(captured.commit, "new") == b"x\r\n"


async def test_nothing_done_is_the_base_and_the_ref_says_so(factory: Place, sandbox: Sandbox) -> None:
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert (captured.commit, captured.ghost, captured.notes) == (factory.base, False, ())
    assert factory.depot.resolve("refs/attempts/1") == factory.base


async def test_processes_are_ended_before_the_disk_is_read(factory: Place, sandbox: Sandbox) -> None:
    script = "while :; do echo x >> busy; done"
    running = asyncio.create_task(sandbox.exec(["sh", "-c", script], timeout_s=60))
    for _ in range(200):
        if "busy" in await sh(sandbox, "ls"):
            break
        await asyncio.sleep(0.05)
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    await asyncio.wait_for(running, 30)
    assert factory.depot.read(captured.commit, "busy") == await sandbox.get(
        "/work/busy", max_bytes=50_000_000
    )


@pytest.mark.spec("GIT-21")
async def test_a_sandbox_started_anew_on_its_disk_gives_the_same_commit(
    factory: Place, sandbox: Sandbox
) -> None:
    await sh(sandbox, "echo two > a; git commit --quiet -am mine; echo left > new")
    before = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    await sandbox.stop()
    again = await factory.boot("one")
    assert await capture(again, factory.depot, base=factory.base, ref="refs/attempts/1") == before


@pytest.mark.spec("GIT-18")
async def test_no_environment_that_the_agent_runs_in_has_a_say(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "git config --global core.excludesFile ~/all; echo '*' > ~/all; mkdir -p ~/.config/git")
    await sh(sandbox, "echo '*' > ~/.config/git/ignore; echo 'raise SystemExit(1)' > json.py; echo x > new")
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    changes = {change.path for change in factory.depot.changes(factory.base, captured.commit)}
    assert changes == {"json.py", "new"}


@pytest.mark.spec("GIT-23")
async def test_placing_makes_the_tree_exactly_that_commit_but_keeps_what_is_ignored(
    factory: Place, sandbox: Sandbox
) -> None:
    await sh(
        sandbox, "mkdir node_modules; echo dep > node_modules/dep; echo x > untracked; mkdir -p new/inside"
    )
    await sh(sandbox, "touch new/inside/x; rm run; git init -q nested; echo x > nested/x; echo changed > a")
    commit = factory.commit(new=b"a file where a folder was\n", a=b"two\n", crlf=None)
    await place(sandbox, factory.depot, commit, base=factory.base)
    assert await sh(sandbox, "git status --porcelain") == ""
    assert await sh(sandbox, "git rev-parse HEAD") == commit
    assert await sh(sandbox, "git rev-parse --abbrev-ref HEAD") == "work"
    assert await sh(sandbox, "cat node_modules/dep a new") == "dep\ntwo\na file where a folder was"
    assert (await sh(sandbox, "ls -A")).split("\n") == [
        *(
            ".git",
            ".gitattributes",
            ".gitignore",
            "a",
            "link",
            "new",
            "new",
            "line",
            "node_modules",
            "run",
            "x.txt",
        ),
    ]
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert captured.commit == commit
    await place(sandbox, factory.depot, factory.base, base=factory.base)
    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert captured.commit == factory.base


@pytest.mark.spec("GIT-23")
@pytest.mark.parametrize(
    "damage",
    [
        "rm -rf .git",
        "rm -rf .git; ln -s /nonexistent .git",
        "rm -rf .git; echo gitdir: /nonexistent > .git",
        "head -c 1000 /dev/urandom > .git/index",
        "rm .git/index; mkfifo .git/index",
        "git config core.worktree /tmp; git config core.bare true; git config core.fsmonitor /work/trap",
        "printf '#!/bin/sh\necho x > ran\n' > .git/trap; chmod +x .git/trap; mkdir -p .git/hooks;"
        " cp .git/trap .git/hooks/post-checkout; cp .git/trap .git/hooks/post-index-change",
        "git update-index --skip-worktree a; echo kept > a",
        "touch .git/index.lock; chmod 0 .git/objects",
        "mkdir locked; touch locked/x; chmod 0 locked .git .",
    ],
)
async def test_whatever_was_done_to_the_repository_placing_makes_a_clean_one(
    factory: Place, sandbox: Sandbox, damage: str
) -> None:
    await sh(sandbox, damage)
    commit = factory.commit(a=b"two\n")
    await place(sandbox, factory.depot, commit, base=factory.base)
    assert await sh(sandbox, "git status --porcelain; git rev-parse HEAD; ls ran 2>&1 || true; cat a") == (
        f"{commit}\nls: cannot access 'ran': No such file or directory\ntwo"
    )


async def test_a_snapshot_of_a_clone_can_be_worked_in(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "mkdir node_modules; echo dep > node_modules/dep")
    snapshot = await factory.backend.snapshot(sandbox, "base")
    worker = await factory.boot("worker", snapshot)
    commit = factory.commit(a=b"two\n")
    await place(worker, factory.depot, commit, base=factory.base)
    assert await sh(worker, "cat node_modules/dep; git status --porcelain") == "dep"
    captured = await capture(worker, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert captured.commit == commit


async def test_work_that_the_depot_refuses_stays_on_the_disk(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = -u./evil\\n' > .gitmodules")
    with pytest.raises(RefusedError, match="gitmodules"):
        await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert factory.depot.resolve("refs/attempts/1") is None
    assert b"evil" in await sandbox.get("/work/.gitmodules", max_bytes=1000)


async def test_too_much_work_is_an_error_that_says_how_much(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "truncate -s 3000000 huge")
    with pytest.raises(SandboxError, match="3000000 bytes, more than 1000000"):
        await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1", max_bytes=1_000_000)


async def test_a_sandbox_without_the_base_is_an_error_that_says_so(factory: Place) -> None:
    bare = await factory.backend.create(SandboxSpec(name="bare"))
    with pytest.raises(SandboxError, match="place failed in sandbox bare"):
        await clone_base(bare, base=factory.base)


async def test_what_a_killed_capture_left_is_removed_by_the_next(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "mkdir ~/.ironworks-capture-old; ln -s /work ~/.ironworks-capture-link; echo x > new")
    await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1")
    assert await sh(sandbox, "ls -A ~") == ".ironworks-capture-link"
    assert await sh(sandbox, "cat new") == "x"


async def test_many_captures_at_once_all_succeed(factory: Place) -> None:
    async def one(number: int) -> str:
        sandbox = await factory.boot(f"s{number}")
        await clone_base(sandbox, base=factory.base)
        await sh(sandbox, f"echo {number} > a")
        ref = f"refs/attempts/{number}"
        return (await capture(sandbox, factory.depot, base=factory.base, ref=ref)).commit

    commits = await asyncio.gather(*(one(number) for number in range(6)))
    assert [factory.depot.read(commit, "a") for commit in commits] == [
        os.fsencode(f"{n}\n") for n in range(6)
    ]


@pytest.mark.spec("GIT-24")
async def test_locks_that_a_killed_git_has_left_do_not_stop_the_next_attempt(factory: Place) -> None:
    sandbox = await factory.boot("one")
    await clone_base(sandbox, base=factory.base)
    await sandbox.exec(
        ["touch", ".git/index.lock", ".git/HEAD.lock", ".git/refs/heads/work.lock"], timeout_s=30
    )
    commit = ["sh", "-c", "echo more > more && git add -A && git commit -qm more"]
    assert not (await sandbox.exec(commit, timeout_s=30)).ok

    await unlock(sandbox)

    assert (await sandbox.exec(commit, timeout_s=30)).ok


async def test_unlocking_follows_no_link_and_needs_no_repository(factory: Place) -> None:
    sandbox = await factory.boot("one")
    linked = "mkdir /tmp/other && touch /tmp/other/x.lock && rm -rf .git && ln -s /tmp/other .git"
    await sandbox.exec(["sh", "-c", linked], timeout_s=30)
    await unlock(sandbox)
    assert (await sandbox.exec(["test", "-e", "/tmp/other/x.lock"], timeout_s=30)).ok


PREPARED = r"""
mkdir -p app.egg-info sub/lib.egg-info node_modules fixtures/deep many
echo meta | tee app.egg-info/PKG-INFO sub/lib.egg-info/PKG-INFO fixtures/deep/one > lock
echo odd | tee 'sp ace ' '!odd' '[a]*?\\' > '#x'
git init -q .hidden; echo 1 > .hidden/file
printf x > "$(printf 'bad\377name')"; printf x > "$(printf 'new\nfile')"
python3 -c 'for i in range(150): open(f"many/{i}", "w")'
echo rewritten >> a; rm run; echo more > node_modules/dep
printf '#!/bin/sh\nexit 1\n' > .git/hooks/pre-commit 2>/dev/null || true
"""


@pytest.mark.spec("GIT-25")
async def test_what_a_preparation_leaves_is_no_change_of_the_worker(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, PREPARED)
    built = await settle(sandbox, base=factory.base)
    left = await sh(sandbox, "find . -path ./.git -prune -o -type f -print | sort | sha256sum")
    assert await sh(sandbox, "git status --porcelain; cat a; stat -c %a run") == "one\n755"
    assert {"/app.egg-info/", "/many/", "/.hidden/", "/lock", "/fixtures/deep/one"} <= set(built)
    worker = await factory.boot("worker", await factory.backend.snapshot(sandbox, "base"))

    captured = await capture(worker, factory.depot, base=factory.base, ref="refs/attempts/1", built=built)
    assert (captured.commit, captured.ghost) == (factory.base, False)

    commit = factory.commit(a=b"two\n")
    await place(worker, factory.depot, commit, base=factory.base, built=built)
    await sh(worker, "git add -A; git diff --cached --quiet; printf 'one\\n' > a")
    assert await sh(worker, "find . -path ./.git -prune -o -type f -print | sort | sha256sum") == left


@pytest.mark.spec("GIT-25")
async def test_what_a_worker_adds_beside_what_was_prepared_is_taken(factory: Place, sandbox: Sandbox) -> None:
    await sh(sandbox, "mkdir fixtures; echo 1 > fixtures/made; echo 1 > lock; echo 1 > other")
    built = await settle(sandbox, base=factory.base)
    await sh(sandbox, "echo 2 > fixtures/new; echo 2 > lock; git add -f lock; echo 2 > other; echo 2 > own")

    captured = await capture(sandbox, factory.depot, base=factory.base, ref="refs/attempts/1", built=built)

    changed = factory.depot.git.run("diff", "--name-only", factory.base, captured.commit).decode().split()
    assert changed == ["fixtures/new", "lock", "own"]
