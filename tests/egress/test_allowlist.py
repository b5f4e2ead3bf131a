"""Rules say exactly what they allow."""

from collections.abc import Sequence

import pytest

from ironworks.core.errors import ConfigError
from ironworks.egress.allowlist import AllowList, parse_rule
from ironworks.egress.refusal import Refusal


async def public(name: str, port: int) -> Sequence[str]:
    return ["1.1.1.1"]


async def inside(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.2"]


async def index(name: str) -> Sequence[tuple[str, int]]:
    return [("index.example", 443), ("files.example", 8080)]


async def allowed(rules: Sequence[str], host: str, port: int = 443) -> bool:
    try:
        to = await AllowList(rules, presets=index, resolver=public).destination("tls", host, port)
    except Refusal as refusal:
        assert refusal.reason == "not-allowed"
        return False
    assert (to.host, to.port, to.addresses) == (host, port, ("1.1.1.1",))
    return True


@pytest.mark.spec("EG-13")
async def test_nothing_is_allowed_without_a_rule() -> None:
    assert not await allowed([], "a.example")


@pytest.mark.spec("EG-13")
async def test_a_name_allows_itself_on_443_only() -> None:
    rules = ["A.example."]
    assert await allowed(rules, "a.example")
    assert not await allowed(rules, "a.example", 80)
    assert not await allowed(rules, "b.a.example")
    assert not await allowed(rules, "aa.example")
    assert not await allowed(rules, "a.example.org")


@pytest.mark.spec("EG-13")
async def test_a_star_allows_what_is_below_and_not_the_name_itself() -> None:
    rules = ["*.a.example:8443"]
    assert await allowed(rules, "b.a.example", 8443)
    assert await allowed(rules, "c.b.a.example", 8443)
    assert not await allowed(rules, "a.example", 8443)
    assert not await allowed(rules, "xa.example", 8443)
    assert not await allowed(rules, "b.a.example")


@pytest.mark.spec("EG-14")
async def test_only_a_pinned_name_may_lead_inside() -> None:
    names = AllowList(["a.example", "b.example=127.0.0.3", "pip"], presets=index, resolver=inside)
    with pytest.raises(Refusal, match="not on the public internet"):
        await names.destination("tls", "a.example", 443)
    assert (await names.destination("tls", "b.example", 443)).addresses == ("127.0.0.3",)
    assert (await names.destination("tls", "index.example", 443)).addresses == ("127.0.0.2",)


@pytest.mark.spec("EG-18")
async def test_a_preset_allows_its_places_and_is_looked_up_only_when_needed() -> None:
    asked = []

    async def lookup(name: str) -> Sequence[tuple[str, int]]:
        asked.append(name)
        return await index(name)

    names = AllowList(["a.example", "npm"], presets=lookup, resolver=public)
    await names.destination("tls", "a.example", 443)
    assert asked == []
    await names.destination("http", "files.example", 8080)
    assert asked == ["npm"]
    with pytest.raises(Refusal):
        await names.destination("tls", "files.example", 443)


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "a b", "127.0.0.1", "[::1]:80", "a.example:x", "a.example=b", "a.*.example", "https://a"],
)
def test_a_rule_that_cannot_be_read_is_an_error_that_shows_the_ways_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)
    assert "npm" in caught.value.hint
