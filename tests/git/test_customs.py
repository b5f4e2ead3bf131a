"""Bundles of strangers: every trick is refused with a reason, and leaves nothing in the depot."""

import os
import zlib
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
from tests.git.conftest import plain_git

from ironworks.core.errors import GitError, RefusedError
from ironworks.git.bundle import write_header
from ironworks.git.depot import Depot
from ironworks.git.tree import Blob, TreeEntry


class Forger:
    """Makes objects and bundles that git would not."""

    def __init__(self, folder: Path, user: Path) -> None:
        self.folder = folder
        self.depot = Depot(folder / "forger.git", user)
        self.base = self.depot.sync("main")

    def raw(self, kind: str, body: bytes) -> str:
        """Any object, unchecked."""
        data = f"{kind} {len(body)}\0".encode() + body
        oid = sha1(data).hexdigest()
        path = self.depot.path / "objects" / oid[:2] / oid[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(data))
        return oid

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        lines = (mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self.raw("tree", b"".join(lines))

    def commit(self, tree: str, *parents: str) -> str:
        return self.depot.commit(tree, parents or (self.base,), "forged")

    def holding(self, name: bytes, data: bytes = b"x", mode: str = "100644") -> str:
        return self.commit(self.tree((mode, name, self.raw("blob", data))))

    def bundle(self, head: str, *exclude: str) -> Path:
        path = self.folder / "bundle"
        self.depot.bundle(head, path, exclude=exclude or (self.base,))
        return path

    def bundle_of(self, head: str, *oids: str) -> Path:
        """A bundle of just these objects."""
        path = self.folder / "bundle"
        listing = "".join(f"{oid}\n" for oid in (head, *oids)).encode()
        pack = self.depot.git.run("pack-objects", "--stdout", "--quiet", stdin=listing)
        path.write_bytes(write_header(head, ()) + pack)
        return path


@pytest.fixture
def forger(tmp_path: Path, user: Path) -> Forger:
    return Forger(tmp_path, user)


@pytest.fixture
def accept(depot: Depot, base: str) -> Callable[[Path], str]:
    return lambda bundle: depot.admit(bundle, base=base, ref="refs/attempts/1")


def assert_untouched(depot: Depot) -> None:
    assert depot.resolve("refs/attempts/1") is None
    assert list((depot.path / "scratch").iterdir()) == []
    assert list((depot.path / "objects" / "pack").glob("*")) == []


Accept = Callable[[Path], str]


@pytest.mark.spec("GIT-12")
def test_honest_work_is_admitted_whole(depot: Depot, accept: Accept, forger: Forger) -> None:
    one = forger.commit(forger.depot.write_tree(forger.base, {"new/file": Blob(b"1"), "a": None}))
    two = forger.commit(forger.depot.write_tree(one, {"link": Blob(b"../../../etc/passwd", "120000")}), one)
    assert accept(forger.bundle(two)) == two == depot.resolve("refs/attempts/1")
    assert depot.parents(two) == (one,)
    assert depot.read(two, "new/file") == b"1"
    assert depot.read(two, "link") == b"../../../etc/passwd"
    assert accept(forger.bundle(two)) == two
    assert list((depot.path / "scratch").iterdir()) == []


def test_work_that_is_the_base_itself_is_admitted(base: str, accept: Accept, forger: Forger) -> None:
    assert accept(forger.bundle(base)) == base


def test_a_bundle_without_prerequisites_is_admitted(
    depot: Depot, accept: Accept, forger: Forger, base: str
) -> None:
    head = forger.holding(b"x")
    forger.depot.bundle(head, forger.folder / "bundle")
    assert accept(forger.folder / "bundle") == head


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (b".git", "100644"),
        (b".git", "40000"),
        (b".GIT", "100644"),
        (b"git~1", "100644"),
        (b".git ", "100644"),
        (b".git::$INDEX_ALLOCATION", "100644"),
        ("\u200c.git".encode(), "100644"),
        (b"..", "40000"),
        (b".", "40000"),
        (b"a/b", "100644"),
        (b"", "100644"),
        (b".gitmodules", "120000"),
        (b"x", "0100644"),
    ],
)
def test_a_tree_with_a_trick_in_a_name_or_mode_is_refused(
    depot: Depot, accept: Accept, forger: Forger, name: bytes, mode: str
) -> None:
    blob = forger.raw("blob", b"x")
    folder = forger.tree(("100644", b"config", blob))
    tree = forger.tree((mode, name, folder if mode == "40000" else blob))
    head = forger.commit(tree)
    with pytest.raises(RefusedError, match="not sound"):
        accept(forger.bundle_of(head, blob, folder, tree))
    assert_untouched(depot)


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize(
    "text",
    [
        b'[submodule "x"]\n\tpath = x\n\turl = -u./evil\n',
        b'[submodule "x"]\n\tpath = -x\n\turl = https://localhost/x\n',
        b'[submodule "../../x"]\n\tpath = x\n\turl = https://localhost/x\n',
        b'[submodule "x"]\n\tpath = x\n\turl = "https://localhost/x\\n"\n',
        b'[submodule "x"]\n\tpath = x\n\tupdate = !touch /tmp/x\n\turl = https://localhost/x\n',
    ],
)
def test_submodules_that_would_run_something_are_refused(
    depot: Depot, accept: Accept, forger: Forger, text: bytes
) -> None:
    with pytest.raises(RefusedError, match="gitmodules"):
        accept(forger.bundle(forger.holding(b".gitmodules", text)))
    assert_untouched(depot)


def test_a_trick_deep_in_the_history_is_refused_too(depot: Depot, accept: Accept, forger: Forger) -> None:
    bad = forger.holding(b".git")
    with pytest.raises(RefusedError, match="not sound"):
        accept(forger.bundle(forger.commit(forger.depot.tree_of(forger.base), bad)))
    assert_untouched(depot)


@pytest.mark.spec("GIT-12")
def test_work_that_does_not_build_on_the_base_is_refused(
    depot: Depot, accept: Accept, forger: Forger
) -> None:
    root = forger.depot.commit(forger.depot.tree_of(forger.base), [], "orphan")
    with pytest.raises(RefusedError, match="does not build on"):
        accept(forger.bundle(root))
    assert_untouched_refs(depot)


def assert_untouched_refs(depot: Depot) -> None:
    assert depot.resolve("refs/attempts/1") is None
    assert list((depot.path / "scratch").iterdir()) == []


@pytest.mark.spec("GIT-12")
def test_a_prerequisite_outside_the_base_is_refused(
    depot: Depot, base: str, accept: Accept, forger: Forger
) -> None:
    """Even one that the depot has: it is another worker's."""
    other = forger.holding(b"other")
    depot.admit(forger.bundle(other), base=base, ref="refs/attempts/other")
    mine = forger.commit(forger.depot.tree_of(other), other)
    with pytest.raises(RefusedError, match="not part of"):
        accept(forger.bundle(mine, other))
    unknown = forger.depot.commit(forger.depot.tree_of(base), [mine], "unknown")
    with pytest.raises(RefusedError, match="not part of"):
        accept(forger.bundle(forger.commit(forger.depot.tree_of(base), unknown), unknown))
    assert_untouched_refs(depot)


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize("kind", ["blob", "tree", "tag"])
def test_a_ref_that_is_no_commit_is_refused(depot: Depot, accept: Accept, forger: Forger, kind: str) -> None:
    blob = forger.raw("blob", b"x")
    tree = forger.tree(("100644", b"x", blob))
    commit = forger.commit(tree)
    tag = forger.raw("tag", f"object {commit}\ntype commit\ntag x\ntagger A <a@b> 1 +0000\n\nx\n".encode())
    head = {"blob": blob, "tree": tree, "tag": tag}[kind]
    with pytest.raises(RefusedError, match="not a commit"):
        accept(forger.bundle_of(head, blob, tree, commit))
    assert_untouched(depot)


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize("missing", ["blob", "tree", "parent"])
def test_incomplete_work_is_refused(depot: Depot, accept: Accept, forger: Forger, missing: str) -> None:
    blob = forger.raw("blob", b"x")
    tree = forger.tree(("100644", b"x", blob))
    parent = forger.commit(forger.depot.tree_of(forger.base))
    head = forger.commit(tree, parent)
    parts = {"blob": blob, "tree": tree, "parent": parent}
    kept = [oid for name, oid in parts.items() if name != missing]
    with pytest.raises(RefusedError):
        accept(forger.bundle_of(head, *kept))
    assert_untouched(depot)


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize("damage", ["cut", "flipped", "longer-count"])
def test_a_damaged_pack_is_refused(depot: Depot, accept: Accept, forger: Forger, damage: str) -> None:
    bundle = forger.bundle(forger.holding(b"x", os.urandom(10_000)))
    data = bytearray(bundle.read_bytes())
    at = data.index(b"PACK")
    if damage == "cut":
        del data[-100:]
    elif damage == "flipped":
        data[-3000] ^= 0xFF
    else:
        data[at + 8 : at + 12] = b"\xff\xff\xff\xff"
    bundle.write_bytes(data)
    with pytest.raises(RefusedError):
        accept(bundle)
    assert_untouched(depot)


HEAD = b"a" * 40


@pytest.mark.spec("GIT-12")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100_000,
        b"PACK",
        b"# v2 git bundle\n",
        b"# v2 git bundle\n\n",
        b"# v2 git bundle\n" + HEAD + b" refs/heads/x\n\n",
        b"# v2 git bundle\n" + HEAD + b" refs/heads/x\n\nPACK",
        b"# v2 git bundle\n-" + HEAD + b" x\n\nPACK" + bytes(8),
        b"# v2 git bundle\n" + HEAD + b" refs/heads/x\n" + HEAD + b" refs/heads/y\n\nPACK" + bytes(8),
        b"# v2 git bundle\n--all refs/heads/x\n\nPACK" + bytes(8),
        b"# v2 git bundle\n---all x\n" + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
        b"# v3 git bundle\n@filter=blob:none\n" + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
        b"# v9 git bundle\n" + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
        b"# v2 git bundle\n" + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
        b"# v2 git bundle\n" + (b"-" + HEAD + b" x\n") * 2000 + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
        b"# v2 git bundle\n" + (b"-" + HEAD + b" x\n") * 200 + HEAD + b" refs/heads/x\n\nPACK" + bytes(8),
    ],
)
def test_what_is_no_bundle_of_one_ref_is_refused(
    depot: Depot, accept: Accept, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "bundle").write_bytes(data)
    with pytest.raises(RefusedError):
        accept(tmp_path / "bundle")
    assert_untouched(depot)


@pytest.mark.spec("GIT-12")
def test_a_bundle_that_is_too_large_packed_or_unpacked_is_refused(
    depot: Depot, base: str, forger: Forger
) -> None:
    bundle = forger.bundle(forger.holding(b"x", bytes(4_000_000)))
    assert bundle.stat().st_size < 100_000
    for max_bytes in (1000, 3_900_000):
        with pytest.raises(RefusedError, match=r"more than|larger than|sound"):
            depot.admit(bundle, base=base, ref="refs/attempts/1", max_bytes=max_bytes)
    assert_untouched(depot)
    depot.admit(bundle, base=base, ref="refs/attempts/1", max_bytes=4_100_000)


@pytest.mark.spec("GIT-12")
def test_trees_that_multiply_into_billions_of_files_are_refused(
    depot: Depot, accept: Accept, forger: Forger
) -> None:
    tree = forger.tree(*(("100644", b"f%02d" % n, forger.raw("blob", b"x")) for n in range(50)))
    for _ in range(8):
        tree = forger.tree(*(("40000", b"d%02d" % n, tree) for n in range(50)))
    with pytest.raises(RefusedError, match="too many files"):
        accept(forger.bundle(forger.commit(tree)))
    assert_untouched(depot)


def test_a_gitlink_is_data(depot: Depot, accept: Accept, forger: Forger) -> None:
    tree = forger.depot.write_tree(forger.base, {"sub": TreeEntry("160000", "b" * 40)})
    commit = accept(forger.bundle(forger.commit(tree)))
    assert depot.files(commit)["sub"].mode == "160000"
    assert depot.merge(commit, depot.resolve("main") or "").clean


@pytest.mark.spec("GIT-13")
def test_nothing_refused_stays_reachable(depot: Depot, accept: Accept, forger: Forger) -> None:
    head = forger.holding(b".git")
    with pytest.raises(RefusedError):
        accept(forger.bundle(head))
    with pytest.raises(GitError):
        depot.git.run("cat-file", "-e", head)


def test_the_forgery_would_pass_without_the_check(user: Path, forger: Forger) -> None:
    bundle = forger.bundle(forger.holding(b".git"))
    plain_git("fetch", "--quiet", bundle, "refs/heads/ironworks-in:refs/heads/forged", cwd=user)
    assert ".git" in plain_git("ls-tree", "--name-only", "forged", cwd=user).split()
