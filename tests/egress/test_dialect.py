"""What all dialects promise, whatever a sandbox or a provider sends."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironworks.egress.dialect import Dialect
from ironworks.egress.provider import DIALECTS

WORDS = [
    "model", "max_tokens", "max_output_tokens", "thinking", "budget_tokens", "tools", "type", "messages",
    "input", "contents", "source", "usage", "message", "response", "generationConfig", "generation_config",
    "maxOutputTokens", "candidateCount", "n", "service_tier", "usageMetadata", "promptTokenCount",
    "prompt_tokens", "stream", "stream_options", "prompt_tokens_details", "cache_creation", "web_search",
    "file_id", "input_tokens",
]  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
)
BODIES = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=8)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(body=BODIES, limit=st.integers(1024, 10**6))
@settings(max_examples=150)
def test_no_document_is_strange_enough_to_raise(dialect: Dialect, body: dict[str, Any], limit: int) -> None:
    asked = dialect.limit(body)
    assert asked is None or asked > 0
    assert isinstance(dialect.unbounded(body), str)
    assert isinstance(dialect.model("/v1beta/models/m:generateContent", body), str)
    limited = dialect.limited(dialect.prepared(body), limit)
    assert dialect.limit(limited) == limit
    json.dumps(limited)
    dialect.ends(body)
    usage = dialect.usage(body)
    if usage is not None:
        with contextlib.suppress(ValueError):
            tokens = dialect.tokens(usage)
            assert min(tokens.input, tokens.output, tokens.cache_read, tokens.cache_write) >= 0


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize(
    "path", ["/v1/models/../files", "/v1/messages/", "/v1/messages?x", "/v1/files", "", "/"]
)
def test_no_other_path_is_an_endpoint(dialect: Dialect, path: str) -> None:
    assert not dialect.metered.fullmatch(path)
    if ".." not in path:
        assert not any(pattern.fullmatch(path) for _, pattern in dialect.free)
