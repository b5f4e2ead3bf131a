"""The whole line in containers."""

from pathlib import Path

import pytest
from tests.e2e.workshop import Workshop, add, states

from ironworks.app.backend import make_backend
from ironworks.core.settings import SandboxSettings
from ironworks.testing.engine import IMAGE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.spec("SB-46")
async def test_issues_land_in_containers_and_nothing_is_left(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine}")
    more = f'[sandbox]\nbackend = "docker"\nimage = "{IMAGE}"\nmemory = "512M"\n'
    plan = {"One": {"work": [add("one")]}, "Two": {"work": [add("two")]}}
    shop = Workshop(tmp_path, plan, more=more)
    shop.environment_more = {"DOCKER_HOST": f"unix://{engine}"}

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed", "Two": "landed"})
    assert shop.suite_passes("ironworks/integration")
    backend = make_backend(SandboxSettings(backend="docker", image=IMAGE), tmp_path / "state")
    assert await backend.sandboxes() == []
    assert [shot.name[:5] for shot in await backend.snapshots()] == ["base-"]
    await backend.close()
    doctor = shop.ironworks("doctor", "--config", str(shop.config))[1]
    assert f"image: {IMAGE}" in doctor


@pytest.mark.spec("SB-45")
def test_an_image_that_is_not_there_is_named_before_any_agent_starts(engine: str, tmp_path: Path) -> None:
    more = '[sandbox]\nbackend = "docker"\nimage = "example.invalid/none:1"\n'
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}}, more=more)
    shop.environment_more = {"DOCKER_HOST": f"unix://{engine}"}
    code, out, _ = shop.call(shop.run_words())
    assert code == 2
    assert "example.invalid/none:1" in out and "docker pull" in out
