"""Which fields and parameters cross the gateway."""

import pytest

from ironworks.egress.header import back, onward, without_keys


def names(headers: list[tuple[bytes, bytes]], *, guarded: bool, attached: tuple[str, ...] = ()) -> list[str]:
    return [name.decode() for name, _ in onward(headers, attached=attached, guarded=guarded)]


@pytest.mark.spec("EG-1")
@pytest.mark.parametrize(
    "name",
    ["x-api-key", "x_api_key", "X-API_KEY", "authorization", "Proxy-Authorization", "x-goog-api-key",
     "cookie", "api-key", "x-forwarded-for", "forwarded", "my_own", "accept-encoding"],
)  # fmt: skip
def test_no_spelling_of_a_credential_field_goes_on(name: str) -> None:
    assert names([(name.encode(), b"v"), (b"accept", b"v")], guarded=True, attached=("My-Own",)) == ["accept"]


def test_fields_for_this_hop_stay_here_and_so_does_what_connection_names() -> None:
    headers = [
        (b"connection", b"close, x-one"),
        (b"x-one", b"1"),
        (b"upgrade", b"h2c"),
        (b"te", b"x"),
        (b"x-two", b"2"),
    ]
    assert names(headers, guarded=False) == ["x-two"]
    assert back([*headers, (b"content-length", b"5")], guarded=False) == [(b"x-two", b"2")]


@pytest.mark.spec("EG-1")
def test_connection_cannot_be_used_to_drop_the_attached_key() -> None:
    # The key is added after this filter, so naming it here changes nothing but the sandbox's own fields.
    assert names([(b"connection", b"x-api-key"), (b"accept", b"v")], guarded=True) == ["accept"]


def test_a_guarded_host_sets_no_cookies() -> None:
    headers = [(b"set-cookie", b"a"), (b"x", b"y")]
    assert back(headers, guarded=True) == [(b"x", b"y")]
    assert back(headers, guarded=False) == headers


@pytest.mark.spec("EG-1")
@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("beta=true&key=1", "beta=true"),
        ("api_key=1&API-KEY=2&access_token=3&%6bey=4", ""),
        ("alt=sse&keyword=x&key", "alt=sse&keyword=x"),
        ("", ""),
    ],
)
def test_parameters_in_which_keys_travel_are_dropped(query: str, kept: str) -> None:
    assert without_keys(query) == kept
