"""The simplest answers import nothing slow; benchmarks/newcomer.py measures what that comes to."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.conftest import parked, started

from ironworks.app.place import Place

SLOW = ("dbos", "sqlalchemy", "pydantic", "rich", "jinja2", "genai_prices", "markdown_it", "asyncio")
PROBE = """\
import json, sys
from ironworks.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("args", [["--help"], ["status"], ["events"], ["show", "one"]])
def test_it_imports_nothing_that_is_slow(place: Place, history: Callable[..., None], args: list[str]) -> None:
    history(started(), *parked("one"), *parked("two"))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, timeout=60, check=False
    )
    modules = json.loads(done.stderr.splitlines()[-1])
    assert "ironworks.cli" in modules
    assert [name for name in SLOW if name in modules] == []
