"""Names are compared in one form, and only names are destinations."""

import pytest

from ironworks.egress.host import addresses, authority, host_name, is_public
from ironworks.egress.refusal import Refusal


@pytest.mark.spec("EG-15")
@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:443", "2130706433:443", "0x7f000001:443", "0177.0.0.1:443", "127.1:443", "[::1]:443",
        "[::ffff:127.0.0.1]:443", "::1:443", "127.0.0.1.:443", "0x7F.1:443", "a.0x:443",
        "a..b:443", "a..:443", ".a:443", "a@b.example:443", "a b.example:443", "a#b.example:443", "a/b:443",
        "a%2eb:443", "-a.example:443", "a-.example:443", "ä.example:443", "a" * 64 + ".example:443",
        "a.example:443:80", "a.example:0", "a.example:65536", "a.example:0x1bb", "a.example:+443",
        "a.example:", "a.example: 443", "a.example:४४३", "a.example", ":443", "", "a\x00b:443", "a\nb:443",
    ],
)  # fmt: skip
def test_what_is_no_name_with_a_port_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        authority(text, None)
    assert caught.value.status == 403
    assert caught.value.denied


@pytest.mark.spec("EG-15")
@pytest.mark.parametrize("text", ["A.Example", "a.example.", "A.EXAMPLE."])
def test_case_and_one_trailing_dot_do_not_matter(text: str) -> None:
    assert host_name(text) == "a.example"
    assert authority(f"{text}:8443", None) == ("a.example", 8443)


def test_punycode_is_compared_as_it_is_written() -> None:
    assert host_name("xn--exmple-cua.example") == "xn--exmple-cua.example"


@pytest.mark.spec("EG-14")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "192.0.2.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%lo",
        "fc00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "2001:0:7f00:1::", "ff02::1",
        "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_addresses_outside_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.spec("EG-14")
async def test_one_address_that_is_not_public_spoils_the_name_unless_it_is_pinned() -> None:
    asked = []

    async def resolver(name: str, port: int) -> list[str]:
        asked.append((name, port))
        return ["1.1.1.1", "127.0.0.2"]

    with pytest.raises(Refusal, match="not on the public internet"):
        await addresses("a.example", 443, resolver, pinned=False)
    assert asked == [("a.example", 443)]
    assert await addresses("a.example", 443, resolver, pinned=True) == ["1.1.1.1", "127.0.0.2"]


async def test_a_name_without_an_address_is_a_502() -> None:
    async def resolver(name: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(Refusal, match="cannot be resolved") as caught:
        await addresses("a.example", 443, resolver, pinned=True)
    assert caught.value.status == 502
