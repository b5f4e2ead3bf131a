"""A secret does not survive the scrubber, whichever way it is cut or spelled."""

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.egress.scrub import Scrubber

SECRET = "sk-test-/a+b=4f2d8a1c9b7e"


@given(before=st.binary(max_size=60), after=st.binary(max_size=60), size=st.integers(1, 30))
def test_no_cut_lets_a_secret_through_and_nothing_else_changes(
    before: bytes, after: bytes, size: int
) -> None:
    text = before + SECRET.encode() + after
    scrubber = Scrubber([f"Bearer {SECRET}"])
    out = b"".join(scrubber.feed(text[start : start + size]) for start in range(0, len(text), size))
    out += scrubber.rest()
    assert len(out) == len(text)
    assert SECRET.encode() not in out
    assert out == before + b"*" * len(SECRET) + after or b"*" in out


@given(text=st.binary(max_size=200), size=st.integers(1, 30))
def test_text_without_a_secret_passes_unchanged(text: bytes, size: int) -> None:
    scrubber = Scrubber([SECRET])
    out = b"".join(scrubber.feed(text[start : start + size]) for start in range(0, len(text), size))
    assert out + scrubber.rest() == text


@pytest.mark.parametrize("lead", ["", "a", "ab", "abc"])
@pytest.mark.parametrize(
    "encode", [base64.b64encode, base64.urlsafe_b64encode, lambda raw: raw.hex().encode()]
)
def test_common_encodings_are_masked(lead: str, encode: object) -> None:
    text: bytes = encode(f"{lead}{SECRET} and more".encode())  # type: ignore[operator]
    masked = Scrubber([SECRET]).whole(text)
    assert masked.count(b"*") > 20
    assert len(masked) == len(text)


def test_a_quoted_secret_is_masked() -> None:
    assert b"4f2d" not in Scrubber([SECRET]).whole(quote(SECRET, safe="").encode())


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    scrubber = Scrubber([SECRET])
    assert scrubber.feed(b"event: done\n\n") == b"event: done\n\n"
    assert scrubber.feed(b"... sk-te") == b"... "
    assert scrubber.feed(b"nt") == b"sk-tent"
