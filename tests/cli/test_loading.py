"""What agents need is fetched before it is needed, and only then. Here npm and pip find nothing at all."""

from pathlib import Path

import pytest

from ironworks.app.place import Place
from ironworks.cli.loading import install_wished, loaded_for
from ironworks.core.errors import ConfigError
from ironworks.core.models import Issue, IssueWishes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    index.mkdir()
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(index)),
        ("XDG_DATA_HOME", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'nothing here' >&2; exit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_only_verbs_that_ask_an_agent_fetch_it(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "operator.toml"
    config.write_text('[agent]\nuse = "claude-code"\n')
    with pytest.raises(ConfigError, match="nothing here"):
        loaded_for(place, config)
    assert loaded_for(place, config, asks=False).settings.agent.use == "claude-code"


@pytest.mark.spec("AG-23")
def test_what_an_entry_wishes_and_cannot_be_had_is_a_warning() -> None:
    issues = [
        Issue(id=f"issue-{number}", title="t", wishes=IssueWishes(agent=agent), closed=closed)
        for number, (agent, closed) in enumerate(
            [("claude-code", True), (None, False), ("nonesuch", False), ("builtin", False)]
        )
    ]
    said: list[str] = []
    install_wished(issues, said.append)
    assert said == []
    install_wished([issues[0].model_copy(update={"closed": False})], said.append)
    assert "nothing here" in said[-1] and said[-1].startswith("warning: ")
