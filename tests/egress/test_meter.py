"""Usage is read from an answer however it is cut up."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.egress.stub import event, stream_events

from ironworks.egress.anthropic import AnthropicDialect
from ironworks.egress.gemini import GeminiDialect
from ironworks.egress.meter import Meter
from ironworks.egress.openai import OpenAIDialect
from ironworks.egress.tokens import Tokens

STREAM = b"".join(stream_events(120, 34))


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    meter = Meter(AnthropicDialect(), streaming=True)
    places = sorted({0, len(STREAM), *cuts})
    for start, end in itertools.pairwise(places):
        meter.feed(STREAM[start:end])
    assert meter.complete
    assert meter.finish() == Tokens(120, 34)


def test_lines_may_end_in_carriage_return_and_line_feed() -> None:
    meter = Meter(AnthropicDialect(), streaming=True)
    meter.feed(STREAM.replace(b"\n", b"\r\n"))
    assert meter.finish() == Tokens(120, 34)


def test_a_stream_without_its_last_event_is_not_complete() -> None:
    meter = Meter(AnthropicDialect(), streaming=True)
    meter.feed(b"".join(stream_events()[:-1]))
    assert meter.finish() is not None
    assert not meter.complete


def test_an_endless_line_is_dropped_and_the_next_one_read() -> None:
    meter = Meter(AnthropicDialect(), streaming=True)
    for _ in range(6):
        meter.feed(b"data: " + b"x" * (1 << 20))
    assert len(meter._pending) <= 5 << 20
    meter.feed(b"\n" + STREAM)
    assert meter.finish() == Tokens(120, 34)


def test_what_the_text_says_about_usage_is_not_usage() -> None:
    meter = Meter(AnthropicDialect(), streaming=True)
    text = json.dumps({"type": "message_delta", "usage": {"output_tokens": 0}})
    meter.feed(event("content_block_delta", delta={"text": f"\n\ndata: {text}\n\n"}) + STREAM)
    assert meter.finish() == Tokens(120, 34)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}}',
         Tokens(9, 2, cache_read=4)),
        (b'{"usage": {"prompt_tokens": 9, "completion_tokens": 2}}', Tokens(9, 2)),
        (b'{"usage": {"prompt_tokens": true, "completion_tokens": 2}}', None),
        (b'{"usage": {"prompt_tokens": 1e99, "completion_tokens": 2}}', None),
        (b"[]", None),
        (b"", None),
        (b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_a_document_is_read_whole(data: bytes, expected: Tokens | None) -> None:
    meter = Meter(OpenAIDialect(), streaming=False)
    meter.feed(data)
    assert meter.finish() == expected


def test_a_list_of_documents_ends_with_the_last_word() -> None:
    meter = Meter(GeminiDialect(), streaming=False)
    meter.feed(
        b'[{"usageMetadata": {"promptTokenCount": 5}}, {"usageMetadata": {"candidatesTokenCount": 7}}]'
    )
    assert meter.finish() == Tokens(5, 7)
