"""Turns a work tree into a commit, in whatever state an agent left it.

Nothing of the agent's `.git` is believed or run: git works in a repository of its own, into which what the
agent committed is imported only if it is sound.
"""

from __future__ import annotations

import glob
import os
import re
import resource
import shutil
import sys
import tempfile

from ironworks.sandbox.inside.git import EMAIL, GITLINK, NAME, SYMLINK, Entry, Failed, Git, read_file, salvage
from ironworks.sandbox.inside.head import find_git_dir, read_head
from ironworks.sandbox.inside.walk import Walk, tree_id

INCOMING = "refs/heads/ironworks-in"
HISTORY_TIMEOUT_S = 120
IGNORE_TIMEOUT_S = 60
PREFIX = ".ironworks-capture-"
MAX_NOTES = 50
MAX_LISTING_BYTES = 128 * 1024 * 1024
ON_BASE = "what is on disk was put onto the base"


class Capture:
    """One capture of `work`, in a repository of its own below `folder`."""

    def __init__(
        self,
        work: str,
        base_git: str,
        base: str,
        folder: str,
        max_bytes: int,
        built: list[str],
        title: str,
    ) -> None:
        self.work = work
        self.title = title
        self.base = base
        self.folder = folder
        self.max_bytes = max_bytes
        self.oid_length = len(base)
        self.notes: list[str] = []
        self.git = Git(os.path.join(folder, "git"))
        self.git.init(base, [os.path.join(base_git, "objects")], bare=True, built=built)

    def run(self) -> dict[str, object]:
        """Do it all; the commit is then at INCOMING in `self.git`."""
        head = self.import_head()
        at_base = self.listing(self.base)
        known = at_base if head in {None, self.base} else {**at_base, **self.listing(str(head))}
        gitlinks = {
            path: known[path] for path in at_base if at_base[path].mode == known[path].mode == GITLINK
        }
        walk = Walk(self.work, self.oid_length, self.note, self.ignored)
        entries = walk.entries(known.keys() | self.index_paths(), gitlinks)
        self.store(entries, {entry.oid for entry in (*at_base.values(), *known.values())})
        tree = self.write_tree(entries)
        if tree != tree_id(entries, self.oid_length):
            raise Failed("the tree that git wrote is not the one on disk")
        commit, ghost = self.commit(tree, head)
        self.git.run("update-ref", INCOMING, commit)
        return {"commit": commit, "tree": tree, "ghost": ghost, "notes": self.notes[:MAX_NOTES]}

    def note(self, text: str, path: bytes = b"") -> None:
        shown = f"{os.fsdecode(path)}: {text}" if path else text
        self.notes.append(shown.encode("utf-8", "backslashreplace").decode("utf-8")[:300])

    def import_head(self) -> str | None:
        """Copy what HEAD has beyond the base, checked object by object; None, with a note, if that fails."""
        try:
            git_dir, common = find_git_dir(self.work)
            head = read_head(git_dir, common)
        except (OSError, ValueError) as error:
            self.note(f"{ON_BASE}, because the worker's repository cannot be read: {error}")
            return None
        if head == self.base:
            return head
        objects = os.path.join(common, "objects")
        if not re.fullmatch(rf"[0-9a-f]{{{self.oid_length}}}", head) or re.search(r'[:"\n]', objects):
            self.note(f"{ON_BASE}, because the worker's HEAD is not understood")
            return None
        problem = self.import_pack(head, {"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects}) or self.oversized(
            head
        )
        if problem:
            self.note(f"{ON_BASE}, because the worker's commits are not sound: {problem}")
            return None
        return head

    def import_pack(self, head: str, env: dict[str, str]) -> str:
        """Empty, or what is wrong."""
        wanted = f"{head}\n^{self.base}\n".encode("ascii")
        args = ("pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset")
        with open(os.path.join(self.folder, "pack"), "w+b") as pack:
            code, _, err = self.git.call(
                *args, stdin=wanted, stdout=pack, env=env, timeout_s=HISTORY_TIMEOUT_S
            )
            if code != 0:
                return err or "git pack-objects failed"
            holds_nothing = os.pread(pack.fileno(), 4, 8) == bytes(4)
            if holds_nothing:
                return ""
            os.lseek(pack.fileno(), 0, os.SEEK_SET)
            code, _, err = self.git.call(
                "index-pack", "--stdin", "--strict", stdin=pack, timeout_s=HISTORY_TIMEOUT_S
            )
        return "" if code == 0 else err or "git index-pack failed"

    def oversized(self, head: str) -> str:
        """Empty, or a complaint: a few small trees that contain each other can list billions of files."""
        args = ("ls-tree", "-r", "--name-only", head)
        return "too many files" if self.git.prints_more_than(MAX_LISTING_BYTES, *args) else ""

    def listing(self, commit: str) -> dict[bytes, Entry]:
        records = self.git.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]
        entries = {}
        for record in records:
            facts, _, path = record.partition(b"\t")
            mode, _, oid = facts.split()
            entries[path] = Entry(mode, oid)
        return entries

    def index_paths(self) -> set[bytes]:
        """What the agent's index tracks: an ignored file that was added by force is meant to be kept."""
        copy = os.path.join(self.folder, "agent-index")
        try:
            salvage(os.path.join(find_git_dir(self.work)[0], "index"), copy)
        except OSError:
            return set()
        args = ("ls-files", "-z", "--stage")
        code, out, _ = self.git.call(*args, env={"GIT_INDEX_FILE": copy}, timeout_s=IGNORE_TIMEOUT_S)
        if code != 0:
            self.note("the worker's index cannot be read: ignored files that it added are not kept")
            return set()
        records = [record.partition(b"\t") for record in out.split(b"\0")[:-1]]
        if any(not facts.endswith(b" 0") for facts, _, _ in records):
            self.note("the worker left a merge unfinished")
        return {path for _, _, path in records}

    def ignored(self, paths: list[bytes]) -> set[bytes]:
        """Which of these the project's `.gitignore` files, or `built`, exclude; none, with a note, if git
        cannot tell."""
        if not paths:
            return set()
        args = ("check-ignore", "--no-index", "-z", "--stdin")
        env = {"GIT_WORK_TREE": self.work}
        # "./" keeps a leading colon from meaning something.
        stdin = b"".join(b"./" + path + b"\0" for path in paths)
        code, out, err = self.git.call(*args, stdin=stdin, env=env, cwd=self.work, timeout_s=IGNORE_TIMEOUT_S)
        if code not in (0, 1):
            self.note(f"what is ignored cannot be told ({err}): everything was kept")
            return set()
        return {path[2:] for path in out.split(b"\0")[:-1]}

    def store(self, entries: dict[bytes, Entry], known: set[bytes]) -> None:
        """Put the contents that git does not have yet into it."""
        new = {path: entry for path, entry in entries.items() if entry.oid not in known}
        new = {path: entry for path, entry in new.items() if entry.mode != GITLINK}
        size = sum(os.lstat(self.on_disk(path)).st_size for path in new)
        if size > self.max_bytes:
            raise Failed(f"the new and changed files have {size} bytes, more than {self.max_bytes}")
        plain = [path for path, entry in new.items() if entry.mode != SYMLINK and b"\n" not in path]
        # "./" keeps a leading quote from meaning something.
        listing = b"".join(b"./" + path + b"\n" for path in plain)
        args = ("hash-object", "-w", "--no-filters")
        written = dict(zip(plain, self.git.run(*args, "--stdin-paths", stdin=listing, cwd=self.work).split()))
        for path in new.keys() - written.keys():
            is_link = new[path].mode == SYMLINK
            data = os.readlink(self.on_disk(path)) if is_link else read_file(self.on_disk(path))
            written[path] = self.git.run(*args, "--stdin", stdin=data).strip()
        for path, oid in written.items():
            if oid != entries[path].oid:
                raise Failed(f"{os.fsdecode(path)!r} changed while it was read")

    def on_disk(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self.work), path)

    def write_tree(self, entries: dict[bytes, Entry]) -> str:
        env = {"GIT_INDEX_FILE": os.path.join(self.folder, "index")}
        lines = b"".join(b"%b %b\t%b\0" % (*entry, path) for path, entry in entries.items())
        self.git.run("update-index", "-z", "--index-info", stdin=lines, env=env)
        return self.git.word("write-tree", env=env)

    def commit(self, tree: str, head: str | None) -> tuple[str, bool]:
        """The commit to deliver, and whether the disk held more than the agent had committed."""
        ghost = tree != self.git.word("rev-parse", (head or self.base) + "^{tree}")
        parent = self.base
        if head and self.git.call("merge-base", "--is-ancestor", self.base, head)[0] == 0:
            parent = head
        elif head:
            self.note("the worker's history does not build on the base: it was squashed onto it")
        if tree == self.git.word("rev-parse", parent + "^{tree}"):
            return parent, False
        why = (
            "The worker left this uncommitted."
            if ghost
            else "The worker's history did not build on its base."
        )
        message = f"{self.title}\n\n{why}"
        # Dated like its parent: the same disk gives the same commit.
        date = self.git.word("log", "-1", "--format=%ct", parent) + " +0000"
        who = {"NAME": NAME, "EMAIL": EMAIL, "DATE": date}
        env = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in who.items()}
        return self.git.word("commit-tree", "-p", parent, "-m", message, tree, env=env), ghost

    def bundle(self) -> None:
        """To stdout."""
        args = ("bundle", "create", "--quiet", "-", INCOMING, f"^{self.base}")
        code, _, err = self.git.call(*args, stdout=sys.stdout.buffer)
        if code != 0:
            raise Failed(f"git bundle: {err}")


def capture(
    *, work: str, base_git: str, base: str, home: str, max_bytes: int, built: list[str], title: str
) -> dict[str, object]:
    """Capture `work`, which was made from `base`, and write what is new as a bundle to stdout."""
    # Whatever the disk holds, the host's file that is our stdout stays small.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * max_bytes, 2 * max_bytes))
    on_disk = home if os.access(home, os.W_OK | os.X_OK) else None
    for left in glob.glob(os.path.join(glob.escape(home), PREFIX + "*")):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=on_disk) as folder:
        made = Capture(work, base_git, base, folder, max_bytes, built, title)
        result = made.run()
        if result["commit"] != base:
            made.bundle()
    return result
