import sys
from pathlib import Path

import pytest

from ironworks.cli.demo.narrator import off_path


@pytest.mark.spec("CLI-8")
def test_the_demo_names_the_folder_of_a_program_that_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ironworks"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert off_path() == str(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert off_path() == ""
