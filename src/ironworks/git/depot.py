"""The depot: a bare mirror on the host through which every commit of the factory passes."""

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from ironworks.core.crash import crash_point
from ironworks.core.errors import GitError, MissingError, RefusedError
from ironworks.git import bundle
from ironworks.git.bare import make_bare
from ironworks.git.command import RECEIVE_PACK, UPLOAD_PACK, Git
from ironworks.git.customs import Customs, keep_packs
from ironworks.git.merge import BASE, LOADABLE_BYTES, OURS, THEIRS, parse_merge
from ironworks.git.ref import MIRRORED, checked, is_ref, own
from ironworks.git.repository import Repository
from ironworks.git.tree import (
    BLOB_MODES,
    Blob,
    Change,
    Conflict,
    Merge,
    TreeEntry,
    encode,
    index_lines,
    parse_changes,
    parse_files,
)

OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
FIRST_DATE_S = 946_684_800
"""The date of a commit without parents: the same input gives the same commit."""
MAX_READ_BYTES = 64 * 1024 * 1024
SCRATCH_AGE_S = 24 * 3600
TRIES = 20
"""How often to try again when another writer holds a lock or was faster."""


class Depot:
    """Bare repository `path` (made if absent) in front of `repository`, the user's own: "the remote".

    Blocking and thread-safe; several processes may share one. A commit is named by its id, or by anything
    `resolve` understands. Paths are text, with surrogates for bytes that are not UTF-8. Refs of our own must
    not lie in the mirrored namespaces (`refs/heads/ironworks/`, `refs/ironworks/`): use `refs/attempts/`.
    Raises ConfigError or RefusedError for an unusable repository, GitError when git fails.
    """

    def __init__(self, path: Path, repository: Path) -> None:
        self.path = path.absolute()
        self.repository = Repository(repository)
        self.git = Git(self.path)
        self._scratch = self.path / "scratch"
        if not (self.path / "HEAD").exists():
            make_bare(self.path, self.repository.object_format())
        self._scratch.mkdir(exist_ok=True)
        self._sweep()

    # -- the remote

    def sync(self, base: str) -> str:
        """Bring branch `base` and the factory's refs in from the repository; the id of the tip of `base`.

        MissingError when the branch does not exist.
        """
        tip = f"refs/heads/{base}"
        if not is_ref(tip) or tip not in self.repository.refs(tip):
            raise MissingError(
                f"{self.repository.path} has no branch {base!r}", hint="name an existing branch"
            )
        specs = (f"+{tip}:{tip}", *(f"+{space}*:{space}*" for space in MIRRORED))
        options = ("--prune", "--no-tags", "--no-write-fetch-head", "--quiet", UPLOAD_PACK)
        for attempt in range(TRIES):
            fetched = self.git.call("fetch", *options, str(self.repository.path), *specs)
            if fetched.code == 0:
                return self._commit(tip)
            if b"lock" not in fetched.err:
                break
            pause(attempt)
        raise GitError(f"cannot read {self.repository.path}: {fetched.reason}")

    def current_branch(self) -> str:
        """What the repository has checked out. ConfigError when detached or without a commit."""
        return self.repository.current_branch()

    def checkout_of(self, branch: str) -> str:
        """Path of the user's work tree that has `branch` checked out; empty when none has."""
        return self.repository.checkout_of(branch)

    def remote_ref(self, ref: str) -> str | None:
        """What the repository's `ref` holds at this moment."""
        return self.repository.refs(checked(ref)).get(ref)

    def remote_refs(self, prefix: str) -> dict[str, str]:
        """The repository's refs below `prefix` at this moment: full name to id."""
        return self.repository.refs(prefix)

    def push(self, ref: str, new: str | None, *, expected: str | None) -> bool:
        """Set the repository's `ref` to `new` if it holds `expected` (None = absent). False: it does not.

        True also when it holds `new` already, so that a push can be repeated after a crash: whoever must know
        that it was the winner pushes a unique commit. GitError when the repository cannot be written.
        """
        checked(ref)
        if new is None and expected is None:
            return self.remote_ref(ref) is None
        crash_point("depot.before_push")
        for attempt in range(TRIES):
            pushed = self.git.call(
                "push",
                "--porcelain",
                "--no-verify",
                f"--force-with-lease={ref}:{expected or ''}",
                RECEIVE_PACK,
                str(self.repository.path),
                f"{new or ''}:{ref}",
            )
            if pushed.code == 0:
                crash_point("depot.after_push")
                return True
            if self.remote_ref(ref) != expected:
                return self.remote_ref(ref) == new
            if b"lock" not in pushed.err or b"; cannot create" in pushed.err:
                break
            pause(attempt)
        raise GitError(f"cannot write {ref} of {self.repository.path}: {pushed.reason}")

    # -- looking

    def resolve(self, rev: str) -> str | None:
        """The commit that a revision names, or None."""
        args = ("rev-parse", "--verify", "--quiet", "--end-of-options", rev + "^{commit}")
        return self.git.run(*args, ok=(0, 1, 128)).decode("ascii").strip() or None

    def tree_of(self, commit: str) -> str:
        """The tree of a commit (or of a tree)."""
        found = self.git.call("rev-parse", "--verify", "--quiet", "--end-of-options", commit + "^{tree}")
        if found.code:
            raise MissingError(f"no commit {commit!r}")
        return found.out.decode("ascii").strip()

    def parents(self, commit: str) -> tuple[str, ...]:
        listing = self.git.run("rev-list", "--parents", "--max-count=1", self._commit(commit))
        return tuple(listing.decode("ascii").split()[1:])

    def is_ancestor(self, ancestor: str, commit: str) -> bool:
        """Whether `commit` contains `ancestor`; a commit contains itself."""
        args = ("merge-base", "--is-ancestor", self._commit(ancestor), self._commit(commit))
        found = self.git.call(*args)
        if found.code > 1:
            raise GitError(f"git merge-base: {found.reason}")
        return found.code == 0

    def merge_base(self, one: str, other: str) -> str | None:
        found = self.git.run("merge-base", self._commit(one), self._commit(other), ok=(0, 1))
        return found.decode("ascii").strip() or None

    def read(self, commit: str, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        """A file's content, or a symlink's target; None if there is none. RefusedError over `max_bytes`."""
        if path.startswith(("./", "../")) or path in {"", ".", ".."} or "\0" in path:
            return None
        oid = self._oid(commit)
        asked = encode(f"info {oid}\0contents {oid}:{path}\0")
        found = self.git.head("cat-file", "--batch-command", "-z", stdin=asked, max_bytes=max_bytes + 9000)
        about, _, rest = found.partition(b"\n")
        if about.endswith(b" missing"):
            raise MissingError(f"no commit {commit!r}")
        header, _, content = rest.partition(b"\n")
        facts = re.fullmatch(rb"[0-9a-f]+ blob ([0-9]+)", header)
        if facts is None:
            return None
        if int(facts[1]) > max_bytes:
            raise RefusedError(f"{path!r} has {int(facts[1])} bytes, more than {max_bytes}")
        return content[: int(facts[1])]

    def files(self, commit: str) -> dict[str, TreeEntry]:
        """Every file, symlink and gitlink of a commit or tree, by path."""
        return parse_files(self.git.run("ls-tree", "-r", "-z", "-l", "--full-tree", self._oid(commit)))

    def changes(self, old: str, new: str) -> list[Change]:
        """The paths that differ between two commits or trees; a rename is a deletion and an addition."""
        options = ("-r", "-z", "--raw", "--no-renames", "--ignore-submodules=none")
        return parse_changes(self.git.run("diff-tree", *options, self._oid(old), self._oid(new)))

    def diff(self, old: str, new: str, *, max_bytes: int = 200_000) -> str:
        """The difference as a patch for people and prompts. A cut at `max_bytes` is said in its last line."""
        options = ("-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")
        args = ("diff-tree", *options, "--ignore-submodules=none", self._oid(old), self._oid(new))
        patch = self.git.head(*args, max_bytes=max_bytes + 1)
        text = patch[:max_bytes].decode("utf-8", "replace")
        return (
            text if len(patch) <= max_bytes else f"{text}\n[the diff is cut here, after {max_bytes} bytes]\n"
        )

    # -- writing

    def write_tree(self, base: str | None, changes: Mapping[str, Blob | TreeEntry | None]) -> str:
        """A tree like `base` (commit, tree or None = empty) with these files put in (None = taken out).

        A file put where a folder was replaces it, and the other way round. RefusedError for a path or mode
        that git would not store: `.git`, `..`, an absolute path.
        """
        known = None if base is None else self._oid(base)
        with self.folder() as folder:
            index = {"GIT_INDEX_FILE": str(folder / "index")}
            if known is not None:
                self.git.run("read-tree", known, env=index)
            stored = self._store([blob for blob in changes.values() if isinstance(blob, Blob)], folder)
            entries = {
                path: TreeEntry(change.mode, next(stored)) if isinstance(change, Blob) else change
                for path, change in changes.items()
            }
            put = self.git.call(
                "update-index", "-z", "--index-info", stdin=index_lines(entries, known), env=index
            )
            # It only warns of a path that it leaves out.
            if put.code or put.err:
                raise RefusedError(f"these files cannot be stored: {put.reason}")
            return self.git.run("write-tree", env=index).decode("ascii").strip()

    def _store(self, blobs: list[Blob], folder: Path) -> Iterator[str]:
        """Write contents into the depot by way of files in `folder`; their ids, in order."""
        if any(blob.mode not in BLOB_MODES for blob in blobs):
            raise RefusedError("a file's mode is 100644, 100755 or 120000")
        for number, blob in enumerate(blobs):
            (folder / str(number)).write_bytes(blob.data)
        listing = "".join(f"{number}\n" for number in range(len(blobs))).encode("ascii")
        args = ("hash-object", "-w", "--no-filters", "--stdin-paths")
        return iter(self.git.run(*args, stdin=listing, cwd=folder).decode("ascii").split() if blobs else [])

    def commit(
        self,
        tree: str,
        parents: Sequence[str],
        message: str,
        *,
        author: str = "Ironworks <ironworks@localhost>",
        unique: bool = False,
    ) -> str:
        """Make a commit and return its id.

        Dated like its newest parent, so that the same input gives the same commit; with `unique` dated now
        and given a nonce, so that no two calls ever give the same one.
        """
        name, _, address = author.replace("\0", "").rstrip("> ").rpartition("<")
        date = f"{int(time.time()) if unique else self._newest(parents)} +0000"
        text = message.replace("\0", "\ufffd") + (f"\n\nNonce: {secrets.token_hex(16)}\n" if unique else "")
        who = {
            "NAME": name if re.search(r"\w", name) else "Ironworks",
            "EMAIL": address.strip(),
            "DATE": date,
        }
        env = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in who.items()}
        flags = [flag for parent in parents for flag in ("-p", parent)]
        args = ("commit-tree", *flags, "-F", "-", tree)
        return self.git.run(*args, stdin=text.encode("utf-8", "replace"), env=env).decode("ascii").strip()

    def _newest(self, parents: Sequence[str]) -> int:
        if not parents:
            return FIRST_DATE_S
        dates = self.git.run("log", "--no-walk", "--format=%ct", "--end-of-options", *parents)
        return max(int(date) for date in dates.split())

    def merge(self, ours: str, theirs: str) -> Merge:
        """Merge two commits without a work tree. No attribute of either side has a say in how."""
        args = ("merge-tree", "--write-tree", "-z", "--messages", self._commit(ours), self._commit(theirs))
        merged = self.git.call(*args)
        if merged.code > 1:
            raise GitError(f"git merge-tree: {merged.reason}")
        raw = parse_merge(merged.out)
        if merged.code == 0:
            return Merge(raw.tree, True, ())
        contents = self._contents({entry.oid for stages in raw.stages.values() for entry in stages.values()})
        conflicts = []
        for path in sorted(raw.stages.keys() | raw.types.keys()):
            stages = raw.stages.get(path, {})
            loaded = {stage: contents[entry.oid] for stage, entry in stages.items()}
            kind = "other" if None in loaded.values() else raw.kind(path)
            conflicts.append(Conflict(path, kind, loaded.get(BASE), loaded.get(OURS), loaded.get(THEIRS)))
        return Merge(raw.tree, False, tuple(conflicts))

    def _contents(self, oids: set[str]) -> dict[str, bytes | None]:
        """Blobs by id; None for what is larger than LOADABLE_BYTES, or a submodule's commit."""
        asked = "".join(f"{oid}\n" for oid in oids).encode("ascii")
        facts = self.git.run("cat-file", "--batch-check", stdin=asked).decode("ascii").splitlines()
        contents: dict[str, bytes | None] = dict.fromkeys(oids)
        for oid, kind, *size in (line.split() for line in facts):
            if kind == "blob" and int(size[0]) <= LOADABLE_BYTES:
                contents[oid] = self.git.run("cat-file", "blob", oid)
        return contents

    def set_ref(self, ref: str, sha: str) -> None:
        """Point a ref of the depot's own at a commit."""
        self.git.run("update-ref", own(ref), self._commit(sha))

    def delete_ref(self, ref: str) -> None:
        """Delete a ref of the depot's own; no error if there is none."""
        self.git.run("update-ref", "-d", own(ref))

    # -- traffic with sandboxes

    def base_repository(self, commit: str, path: Path) -> None:
        """A bare repository of its own at `path`, whose branch `base` is `commit` with all its history.

        Complete or absent, also after a crash; RefusedError when `path` holds another commit.
        """
        commit = self._commit(commit)
        if not path.exists():
            make_bare(path, self.object_format(), fill=lambda made: self._fill(made, commit))
        tip = Git(path).run("rev-parse", "--verify", "refs/heads/base").decode("ascii").strip()
        if tip != commit:
            raise RefusedError(f"{path} holds {tip}, not {commit}")

    def _fill(self, made: Path, commit: str) -> None:
        pack = str(made / "objects" / "pack" / "pack")
        args = ("pack-objects", "--revs", "--quiet", "--delta-base-offset", pack)
        self.git.run(*args, stdin=commit.encode() + b"\n", timeout_s=1800)
        Git(made).run("update-ref", "refs/heads/base", commit)

    def object_format(self) -> str:
        """`sha1` or `sha256`."""
        return self.git.run("rev-parse", "--show-object-format").decode("ascii").strip()

    def bundle(self, commit: str, path: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write `commit`, without what `exclude` holds, as a bundle of one ref: `refs/heads/ironworks-in`."""
        commit, *known = (self._commit(rev) for rev in (commit, *exclude))
        wanted = "".join(f"{rev}\n" for rev in (commit, *(f"^{oid}" for oid in known)))
        with FileIO(path, "w") as file:
            file.write(bundle.write_header(commit, tuple(known)))
            args = ("pack-objects", "--revs", "--thin", "--stdout", "--quiet", "--delta-base-offset")
            packed = self.git.call(*args, stdin=wanted.encode("ascii"), stdout=file, timeout_s=600)
        if packed.code:
            raise GitError(f"git pack-objects: {packed.reason}")

    def admit(self, bundle_path: Path, *, base: str, ref: str, max_bytes: int = 512 * 1024 * 1024) -> str:
        """Let a stranger's bundle in and point our `ref` at its commit, which is returned. Idempotent.

        RefusedError, and nothing kept, unless: at most `max_bytes` packed and unpacked, exactly one ref,
        prerequisites all part of `base`, every object sound (no `.git` or `..` in a tree, no `.gitmodules`
        that tricks), complete, and `base` an ancestor of the commit.
        """
        own(ref)
        base = self._commit(base)
        crash_point("depot.before_admit")
        with FileIO(bundle_path) as file, self.folder() as folder:
            if os.fstat(file.fileno()).st_size > max_bytes:
                raise RefusedError(f"the bundle is larger than {max_bytes} bytes")
            head = Customs(self.git, folder).inspect(file, base, max_bytes)
            keep_packs(folder, self.path / "objects" / "pack")
        crash_point("depot.after_fetch")
        self.set_ref(ref, head)
        crash_point("depot.after_admit")
        return head

    # -- inside

    def _oid(self, rev: str) -> str:
        return rev if OID.fullmatch(rev) else self._commit(rev)

    def _commit(self, rev: str) -> str:
        if OID.fullmatch(rev):
            return rev
        commit = self.resolve(rev)
        if commit is None:
            raise MissingError(f"no commit {rev!r}")
        return commit

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder on the depot's disk that goes when the block ends, and some day after a crash."""
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a crash left; what is young may be another process's."""
        for folder in self._scratch.iterdir():
            with suppress(FileNotFoundError):
                if folder.stat().st_mtime < time.time() - SCRATCH_AGE_S:
                    shutil.rmtree(folder, ignore_errors=True)


def pause(attempt: int) -> None:
    """Let another writer finish."""
    time.sleep(0.01 * (attempt + 1))
