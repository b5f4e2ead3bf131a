"""Credentials are found by their shape, and never repeated."""

import pytest

from ironworks.verify.secret import secrets_added

# Written in pieces, so that no scanner takes this page for a leak.
SHAPES = [
    "-----BEGIN " + "RSA PRIVATE KEY-----",
    "-----BEGIN " + "PRIVATE KEY-----",
    "AKIA" + "ABCDEFGH12345678",
    "gh" + "p_" + "a1B2" * 9,
    "github" + "_pat_" + "a1B2_" * 10,
    "xox" + "b-1234567890-abcdefghij",
    "AI" + "za" + "b" * 35,
    "sk-" + "ant-" + "a1b2" * 6,
    "sk-" + "a1B2" * 12,
    "npm" + "_" + "a1B2" * 9,
    "gl" + "pat-" + "a1B2" * 5,
]


@pytest.mark.parametrize("text", SHAPES)
def test_a_credential_in_a_new_line_is_found_with_its_line(text: str) -> None:
    found = secrets_added(b"a = 1\n", f"a = 1\nkey = '{text}'\n".encode())
    assert [number for number, _ in found] == [2]
    assert text not in found[0][1]


@pytest.mark.parametrize("text", SHAPES)
def test_a_credential_that_was_there_before_is_not_this_changes_fault(text: str) -> None:
    line = f"key = '{text}'\n".encode()
    assert secrets_added(line, b"new = 1\n" + line) == []


@pytest.mark.parametrize("text", ["sk-test-123", "AKIA", "a" * 40, "-----BEGIN PUBLIC KEY-----", "\0\xff"])
def test_what_only_resembles_one_is_left_alone(text: str) -> None:
    assert secrets_added(b"", text.encode("latin-1")) == []
