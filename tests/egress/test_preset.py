"""A preset is what the host's own client says, whatever else it prints."""

import pytest

from ironworks.egress import preset as module
from ironworks.egress.preset import PRESETS, places
from ironworks.egress.refusal import Refusal


@pytest.mark.spec("EG-18")
@pytest.mark.parametrize(
    ("name", "output", "found"),
    [
        (
            "pip",
            "Looking in indexes: https://i.example\n2 location(s) to search for versions of pip:\n"
            "* https://i.example/simple/pip/\n* file:///x/pip\n"
            "  Found link https://f.example:8443/a/pip-1.whl (from https://i.example/simple/pip/)\n"
            "See https://docs.example\n",
            [("i.example", 443), ("f.example", 8443)],
        ),
        (
            "uv",
            "DEBUG Sending fresh GET request for: http://i.example/simple/pip/\nhttps://docs.example\n",
            [("i.example", 80)],
        ),
    ],
)
def test_only_urls_that_the_client_fetches_count(
    name: str, output: str, found: list[tuple[str, int]]
) -> None:
    [question] = PRESETS[name]
    assert places(question.urls.findall(output)) == found


def test_credentials_and_addresses_in_urls_are_no_places() -> None:
    assert places(
        ["https://user:sk-test@i.example/x", "http://127.0.0.1/x", "https://[::1]/", "https://i.example"]
    ) == [("i.example", 443)]


@pytest.mark.spec("EG-18")
async def test_a_client_that_names_no_index_is_a_clear_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Refusal, match="npm on the host names no package index"):
        await module.Presets()("npm")
