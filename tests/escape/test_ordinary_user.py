"""All of this holds as well where Ironworks runs as a user who is not root: the whole suite, run by one."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.escape.place import open_to_all

SUITE = Path(__file__).parent
LACKING = (
    "needs root",
    "needs the capability",
    "needs a kernel",
    "needs an x86_64 kernel",
)


def enterable(path: str) -> str | None:
    """`path`, where every user may get at it, and it is no Python of another version."""
    real = Path(path).resolve()
    if any(not folder.stat().st_mode & 1 for folder in real.parents):
        return None
    return path if real.is_dir() or real.name == Path(sys.executable).resolve().name else None


def environment(home: Path) -> dict[str, str]:
    # The other Python finds our packages, but reads none of the files that name folders.
    packages = [str(SUITE.parents[1] / "src"), sysconfig.get_path("purelib")]
    path = "/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(packages)}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.spec("SB-22")
def test_an_ordinary_user_is_held_in_the_same_way(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user: run by one, the suite itself shows it")
    python = next(filter(None, map(enterable, (sys.executable, "/usr/bin/python3"))), None)
    if python is None or enterable(str(SUITE)) is None:
        pytest.skip("needs a Python like ours and a copy of this repository that other users can enter")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    open_to_all(tmp_path)
    options = ["-m", "not soak", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={home / 'tests'}", "-q"]
    done = subprocess.run(
        [python, "-B", "-m", "pytest", *options, f"--ignore={__file__}", str(SUITE)],
        cwd=SUITE.parents[1], env=environment(home),
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, timeout=360, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 20
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", done.stdout, re.MULTILINE)
    assert [reason for reason in reasons if not reason.startswith(LACKING)] == []
