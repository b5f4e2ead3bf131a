import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ironworks.agents.loop.event import Broken, Stop, clip
from ironworks.agents.loop.wire import Client, read_stream, seconds


def stream(*events: dict[str, Any]) -> Iterator[bytes]:
    for event in events:
        yield from (f"event: {event['type']}\n".encode(), f"data: {json.dumps(event)}\n".encode(), b"\n")


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "m", "content": [], "usage": {"input_tokens": 3}},
}
END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]
TOOL: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "bash", "input": {}}


@pytest.mark.spec("AG-9")
def test_a_message_is_put_together_from_its_stream() -> None:
    message = read_stream(
        stream(
            START,
            {"type": "ping"},
            *block(
                0,
                {"type": "thinking", "thinking": ""},
                {"thinking": "hm"},
                {"thinking": "m"},
                {"signature": "s"},
            ),
            *block(1, {"type": "text", "text": ""}, {"text": "a"}, {"text": "b"}),
            *block(2, TOOL, {"partial_json": '{"com'}, {"partial_json": 'mand": "ls"}'}),
            *block(3, TOOL),
            *END,
        )
    )
    assert message["content"] == [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "text", "text": "ab"},
        {**TOOL, "input": {"command": "ls"}},
        TOOL,
    ]
    assert (message["stop_reason"], message["usage"]) == ("tool_use", {"input_tokens": 3, "output_tokens": 7})


@pytest.mark.spec("AG-9")
def test_an_unreadable_input_is_kept_as_one_no_tool_takes() -> None:
    message = read_stream(stream(START, *block(0, TOOL, {"partial_json": '{"command": "l'}), *END))
    assert message["content"][0]["input"] == {"unreadable": '{"command": "l'}


@pytest.mark.spec("AG-10")
@pytest.mark.parametrize("count", range(8))
def test_a_stream_that_ends_early_is_broken(count: int) -> None:
    events = [START, *block(0, {"type": "text", "text": ""}, {"text": "a"}, {"text": "b"}), *END]
    assert len(events) == 7
    if count == 7:
        assert read_stream(stream(*events))["content"][0]["text"] == "ab"
        return
    with pytest.raises(Broken, match="ended early"):
        read_stream(stream(*events[:count]))


@pytest.mark.spec("AG-10")
def test_an_error_in_the_stream_breaks_it() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error"}}
    with pytest.raises(Broken, match="overloaded_error") as caught:
        read_stream(stream(START, error))
    assert caught.value.midway


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), ("", None), ("soon", None), ("nan", 0.0), ("2", 2.0), ("-3", 0.0), ("1e9", 60.0)],
)
def test_the_time_to_wait_is_bounded_whatever_the_header_says(
    value: str | None, expected: float | None
) -> None:
    assert seconds(value) == expected


def test_a_long_text_keeps_its_beginning_and_mostly_its_end() -> None:
    text = clip("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 25 + "\n[... 900 characters left out")
    assert text.endswith("\n" + "b" * 75)
    assert clip("short", 100) == "short"


class Provider(http.server.BaseHTTPRequestHandler):
    """Gives a whole message and keeps the last request."""

    got: dict[str, Any] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        Provider.got = {"path": self.path, "headers": self.headers, "body": json.loads(body)}
        answer = json.dumps({"content": [{"type": "text", "text": "hi"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


TASK = {"base_url": "", "key": "dummy", "model": "m", "max_tokens": 5, "effort": ""}


@pytest.mark.spec("AG-9")
def test_a_request_names_the_effort_and_marks_what_to_cache(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    client = Client({**TASK, "base_url": f"{provider}/anthropic/", "effort": "high"}, [])
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert client.ask(messages)["content"] == [{"type": "text", "text": "hi"}]
    assert Provider.got["path"] == "/anthropic/v1/messages"
    body = Provider.got["body"]
    assert body["output_config"] == {"effort": "high"}
    marks = [part.get("cache_control") for part in body["messages"][0]["content"]]
    assert marks == [None, {"type": "ephemeral"}]
    assert "cache_control" not in json.dumps(messages)


@pytest.mark.spec("AG-10")
def test_nobody_listening_is_tried_again_and_then_given_up() -> None:
    waits: list[float] = []
    with pytest.raises(Stop, match="did not answer in 8 tries: ConnectionRefusedError"):
        client = Client({**TASK, "base_url": "http://127.0.0.1:1"}, [], sleep=waits.append)
        client.ask([{"role": "user", "content": [{}]}])
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
