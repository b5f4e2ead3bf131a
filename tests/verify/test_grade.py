"""The hidden suite: run on a commit from outside the tree, and believed as little as any other."""

import os
from pathlib import Path

import pytest
from tests.verify.workshop import Workshop, shell, workshop

from ironworks.core.errors import ConfigError
from ironworks.core.report import Grade
from ironworks.verify import grade as module
from ironworks.verify.grade import INSIDE, grade

BASE = {
    "m.py": "def one():\n    return 0\n",
    "tests/test_m.py": "import m\n\n\ndef test_m():\n    m.one()\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
MENDED = {"m.py": "def one():\n    return 1\n"}
HIDDEN = "import m\n\n\ndef test_one():\n    assert m.one() == 1\n\n\ndef test_name():\n    assert m.one\n"


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    folder = tmp_path / "a hidden suite"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "test_secret.py").write_text(HIDDEN)
    return folder


async def graded(shop: Workshop, commit: str, folder: Path, command: str = "") -> Grade:
    return await grade(shop.suites(), commit, folder, command, name="grade")


@pytest.mark.spec("VF-14")
async def test_each_commit_gets_the_grade_it_deserves(tmp_path: Path, hidden: Path) -> None:
    async with workshop(tmp_path / "shop", BASE) as shop:
        before = await graded(shop, shop.base, hidden)
        after = await graded(shop, shop.commit(MENDED), hidden)
        assert (before.passed, before.failed, before.total, before.problem) == (1, 1, 2, "")
        assert (after.passed, after.total, after.problem) == (2, 2, "")
        assert {test.rpartition("::")[2]: outcome for test, outcome in before.tests.items()} == {
            "test_one": "failed",
            "test_name": "passed",
        }
        assert not await shop.backend.has_disk("grade")


@pytest.mark.spec("VF-14")
async def test_the_suite_stands_outside_of_the_tree_it_judges(tmp_path: Path, hidden: Path) -> None:
    async with workshop(tmp_path / "shop", BASE) as shop:
        found = "find /work -name '*secret*' | grep . && exit 9; ls {hidden}/deep/test_secret.py && "
        write = 'printf \'<testsuite><testcase classname="c" name="t"/></testsuite>\' > {junit}'
        seen = await graded(shop, shop.base, hidden, found + write)
        assert (seen.passed, seen.total, seen.problem) == (1, 1, "")
        assert INSIDE.startswith("/run/")


@pytest.mark.spec("VF-14")
@pytest.mark.parametrize("command", ["true # {junit}", "exit 3 # {junit}", "echo '<' > {junit}"])
async def test_a_suite_that_cannot_be_used_grades_nothing(tmp_path: Path, hidden: Path, command: str) -> None:
    async with workshop(tmp_path / "shop", BASE) as shop:
        seen = await graded(shop, shop.base, hidden, command)
        assert (seen.passed, seen.total, seen.tests) == (0, 0, {})
        assert seen.problem


async def test_a_suite_that_hangs_is_ended(tmp_path: Path, hidden: Path) -> None:
    async with workshop(tmp_path / "shop", BASE) as shop:
        suites = shop.suites(shell("true {junit}", timeout_s=1))
        seen = await grade(suites, shop.base, hidden, "sleep 60 # {junit}", name="grade")
        assert "not finished after 1 s" in seen.problem and seen.total == 0


async def test_links_out_of_the_folder_are_left_out(tmp_path: Path, hidden: Path) -> None:
    (hidden / "passwd").symlink_to("/etc/passwd")
    (hidden / "all").symlink_to("/")
    assert set(module._contents(hidden)) == {f"{INSIDE}/deep/test_secret.py"}


async def test_a_folder_that_is_not_there_or_too_large_is_an_error(
    tmp_path: Path, hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        module._contents(tmp_path / "nowhere")
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    with pytest.raises(ConfigError, match="more than"):
        module._contents(hidden)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user: root reads everything")
async def test_half_a_suite_is_none(tmp_path: Path, hidden: Path) -> None:
    (hidden / "deep").chmod(0)
    async with workshop(tmp_path / "shop", BASE) as shop:
        with pytest.raises(ConfigError, match="cannot be read"):
            await graded(shop, shop.base, hidden)


async def test_a_file_that_vanishes_while_it_is_read_is_an_error(
    tmp_path: Path, hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(folder: Path) -> dict[str, bytes]:
        return {"x": (folder / "gone").read_bytes()}

    monkeypatch.setattr(module, "_contents", vanished)
    async with workshop(tmp_path / "shop", BASE) as shop:
        with pytest.raises(ConfigError, match="cannot be read: No such file"):
            await graded(shop, shop.base, hidden)
