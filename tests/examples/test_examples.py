"""Each example does what its README says, typed word by word."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LANDED = {
    "own-repository": {"Say goodbye", "Greet a whole table"},
    "node": {"Count words", "Put words in title case"},
    "monorepo": {
        "Add up prices in the API",
        "Show a list of prices",
        "Discounts, in the API and on the page",
    },
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if (path / "operator.toml").exists()} == set(LANDED)
    index = (EXAMPLES / "README.md").read_text("utf-8")
    assert all(f"({name}/)" in index for name in LANDED)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("DM-8")
@pytest.mark.parametrize("name", LANDED)
def test_the_commands_of_the_readme_end_with_merged_issues(tmp_path: Path, name: str) -> None:
    if name != "own-repository" and not shutil.which("node"):
        pytest.skip("needs Node")
    here = tmp_path / "examples"
    shutil.copytree(EXAMPLES, here)
    (commands,) = re.findall(r"```sh\n(.*?)```", (here / name / "README.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "tmp").mkdir()
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "LANG": "C.UTF-8",
        **{
            f"GIT_{who}_{what}": "me@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
        **{name: os.environ[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if name in os.environ},
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", commands], cwd=here / name, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    log = done.stdout.splitlines()[-len(LANDED[name]) - 1 :]
    assert {line.partition(" ")[2] for line in log} == LANDED[name] | {"Start"}
