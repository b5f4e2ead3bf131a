import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.agents.handoff import MAX_HANDOFF_BYTES, parse_handoff
from ironworks.core.handoffs import WorkReport

GOOD = {"status": "done", "summary": "it adds"}


def test_a_valid_handoff_is_parsed() -> None:
    assert parse_handoff(json.dumps(GOOD), WorkReport) == WorkReport(status="done", summary="it adds")


@pytest.mark.spec("AG-4")
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("", "it is empty"),
        ("On branch work", "it begins 'On branch work'"),
        ("null", "one JSON object"),
        ('[{"status": "done"}]', "one JSON object"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"status": "done", "summary": NaN}', "NaN is not allowed"),
        ('{"status": "done", "summary": -Infinity}', "-Infinity is not allowed"),
        ('{"status": "done", "summary": "a", "status": "blocked"}', "'status' is there twice"),
        ('{"status": "done", "summary": "\\ud800"}', "summary"),
        ('{"status": "done", "summary": "a", "merge": true}', "merge: Extra"),
        ('{"status": "perfect"}', "summary: Field required"),
        ('{"status": "done", "summary": ' + "9" * 10_000 + "}", "not JSON"),
        (b'{"status": "done", "summary": "\xff"}', "not JSON"),
        (b" " * (MAX_HANDOFF_BYTES + 1), "more than"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_hostile_handoff_is_refused_with_a_clear_reason(raw: str | bytes, words: str) -> None:
    errors = parse_handoff(raw, WorkReport)
    assert isinstance(errors, list)
    assert words in "\n".join(errors)
    assert all(len(error) < 1000 for error in errors)


@pytest.mark.spec("AG-4")
@pytest.mark.parametrize(("start", "count"), [("", 20), ("\n", 20), ("\ud800", 1)])
def test_errors_are_few_and_printable_whatever_the_keys_are(start: str, count: int) -> None:
    keys = {f"{start}{'k' * 5000}{index}": 1 for index in range(500)}
    errors = parse_handoff(json.dumps({**GOOD, **keys}), WorkReport)
    assert isinstance(errors, list)
    assert len(errors) == count
    assert "\n".join(errors).encode("utf-8")


@pytest.mark.spec("AG-4")
@given(st.binary(max_size=300) | st.text(max_size=300))
def test_no_bytes_make_parsing_raise(raw: bytes | str) -> None:
    assert isinstance(parse_handoff(raw, WorkReport), list)
