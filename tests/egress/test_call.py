"""Model calls end to end: sandbox, gateway, a stub provider, and the ledger on disk."""

import asyncio
import contextlib
import http.client
import json
import threading
import tomllib
from typing import Any

import pytest
from tests.egress.conftest import KEY, OpenBox, anthropic, grant
from tests.egress.stub import (
    STREAM_HEAD,
    Seen,
    always,
    answer,
    event,
    message,
    stream_events,
    stub,
    until,
)

from ironworks.core.events import UsageRecorded
from ironworks.core.settings import Price
from ironworks.egress.host import resolve


def body(**more: Any) -> bytes:
    request = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
    return json.dumps({**request, **more}).encode()


async def begin(port: int, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request under way, its answer not yet read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /claude/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(request))
    writer.write(request)
    return reader, writer


def streaming(*events: bytes, pause_s: float = 0) -> Any:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for item in events:
            writer.write(item)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return behave


@pytest.mark.spec("EG-22")
async def test_a_provider_without_its_key_refuses_and_says_why(open_box: OpenBox) -> None:
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url, key="env:NONE")}) as box,
    ):
        reply = await box.ask("POST", "/claude/v1/messages", body=body())
        assert reply.status == 401
        assert b"provider claude has no key: env:NONE is not set" in reply.body
        assert up.seen == []


@pytest.mark.spec("EG-1")
async def test_the_key_is_attached_on_the_host_and_what_the_agent_sent_in_its_place_is_dropped(
    open_box: OpenBox,
) -> None:
    sent = {"X-Api-Key": "mine", "X_Api_Key": "mine", "Authorization": "Bearer mine", "anthropic-beta": "b"}
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url)}) as box,
    ):
        reply = await box.ask("POST", "/claude/v1/messages?beta=true&api_key=mine", body=body(), headers=sent)
        assert reply.status == 200
        [seen] = up.seen
        assert seen.target == "/v1/messages?beta=true"
        assert [value for name, value in seen.headers if "key" in name.lower()] == [KEY]
        assert "mine" not in str(seen.headers)
        assert seen.header("anthropic-beta") == "b"
        assert seen.header("accept-encoding") == "identity"


@pytest.mark.spec("EG-2")
async def test_a_json_answer_is_priced_and_on_the_ledger_before_it_ends(open_box: OpenBox) -> None:
    usage = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 80}
    reply = answer(message(100, 10, **usage))
    async with stub(always(reply)) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        await box.ask("POST", "/claude/v1/messages", body=body())
        cost = (1100 * 1.0 + 80 * 1.25 + 10 * 10.0) / 1e6
        assert box.ledger.spent(issue="i") == pytest.approx(cost)
        assert box.attachment.spent_usd == pytest.approx(cost)
        assert box.attachment.requests == 1
        [recorded] = box.events_of("UsageRecorded")
        assert isinstance(recorded, UsageRecorded)
        assert recorded.usage.input_tokens == 1180
        assert recorded.usage.cache_read_tokens == 1000
        assert not recorded.usage.estimated


@pytest.mark.spec("EG-2")
async def test_a_stream_is_settled_before_the_client_sees_that_it_is_complete(open_box: OpenBox) -> None:
    async with (
        stub(streaming(*stream_events(100, 70), pause_s=0.02)) as up,
        open_box(providers={"claude": anthropic(up.url)}) as box,
    ):
        reader, writer = await begin(box.port, body(stream=True))
        await reader.readuntil(b"message_stop")
        assert box.ledger.spent(issue="i") == pytest.approx(0.0008)
        writer.close()
        assert box.ledger.usage(run="r")[0].output_tokens == 70


@pytest.mark.spec("EG-3")
async def test_a_stream_is_passed_on_as_it_comes(open_box: OpenBox) -> None:
    go_on = asyncio.Event()

    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        first, *rest = stream_events()
        writer.write(STREAM_HEAD + first)
        await writer.drain()
        await go_on.wait()
        writer.write(b"".join(rest))

    async with stub(behave) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        reader, writer = await begin(box.port, body(stream=True))
        # The provider waits for us to have seen the first event.
        await asyncio.wait_for(reader.readuntil(b"message_start"), 20)
        go_on.set()
        await asyncio.wait_for(reader.readuntil(b"message_stop"), 20)
        writer.close()


@pytest.mark.spec("EG-4")
@pytest.mark.parametrize(
    "reply",
    [
        answer(b'{"type": "message"}'),
        answer(b"not json"),
        answer(message(-5, 10)),
        answer(json.dumps({"usage": {"input_tokens": "many", "output_tokens": 1}}).encode()),
        STREAM_HEAD + event("message_start", message={"usage": {"input_tokens": 1, "output_tokens": 1}}),
        STREAM_HEAD.replace(b"Connection: close", b"Content-Length: 9999") + stream_events()[0],
    ],
)
async def test_an_answer_that_does_not_tell_its_usage_is_charged_in_full(
    open_box: OpenBox, reply: bytes
) -> None:
    async with stub(always(reply)) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        with contextlib.suppress(http.client.HTTPException, OSError):
            await box.ask("POST", "/claude/v1/messages", body=body(max_tokens=1000))
        assert box.ledger.spent(issue="i") > 1000 * 10 / 1e6
        assert [usage.estimated for usage in box.ledger.usage(run="r")] == [True]
        assert up.seen


@pytest.mark.spec("EG-4")
async def test_a_client_that_leaves_in_mid_stream_is_charged_what_was_reserved(open_box: OpenBox) -> None:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + stream_events()[0])
        await writer.drain()
        await asyncio.sleep(60)

    async with stub(behave) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        reader, writer = await begin(box.port, body(stream=True, max_tokens=1000))
        await reader.readuntil(b"message_start")
        reserved = box.ledger.spent(issue="i")
        writer.transport.abort()
        await until(lambda: box.ledger.usage(run="r"))
        assert box.ledger.usage(run="r")[0].estimated
        assert box.ledger.spent(issue="i") == reserved > 0.01


@pytest.mark.spec("EG-4")
async def test_closing_an_attachment_settles_what_is_under_way(open_box: OpenBox) -> None:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with stub(behave) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        call = asyncio.create_task(box.ask("POST", "/claude/v1/messages", body=body()))
        await until(lambda: up.seen)
        await box.attachment.close()
        assert len(box.ledger.usage(run="r")) == 1
        with pytest.raises((OSError, http.client.HTTPException)):
            await call
        assert box.ledger.recover() == 0


@pytest.mark.spec("EG-5")
async def test_a_spent_budget_is_refused_in_the_providers_own_shape_and_nothing_is_sent(
    open_box: OpenBox,
) -> None:
    limits = grant(issue_cap_usd=0.001)
    async with stub(always(answer(message()))) as up:
        providers = {
            "claude": anthropic(up.url),
            "gpt": anthropic(f"{up.url}/v1", kind="openai"),
            "gem": anthropic(up.url, kind="gemini"),
        }
        async with open_box(providers=providers, grant=limits) as box:
            big = body(max_tokens=4000)
            replies = [
                await box.ask("POST", "/claude/v1/messages", body=big),
                await box.ask("POST", "/gpt/v1/chat/completions", body=big),
                await box.ask("POST", "/gem/v1beta/models/m:generateContent", body=b"{}"),
            ]
            assert [reply.status for reply in replies] == [402, 400, 402]
            assert [reply.headers["x-should-retry"] for reply in replies] == ["false"] * 3
            assert replies[0].json["error"]["type"] == "billing_error"
            assert replies[1].json["error"]["type"] == "insufficient_quota"
            assert replies[2].json["error"]["status"] == "RESOURCE_EXHAUSTED"
            assert box.attachment.over_budget
            assert box.attachment.requests == 0
            assert up.seen == []
            assert box.ledger.spent() == 0


@pytest.mark.spec("EG-5")
@pytest.mark.parametrize("cap", ["issue_cap_usd", "run_cap_usd", "day_cap_usd"])
async def test_each_cap_stops_the_calls_and_no_call_passes_it(open_box: OpenBox, cap: str) -> None:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(message(50, request.json["max_tokens"])))

    async with (
        stub(behave) as up,
        open_box(providers={"claude": anthropic(up.url)}, grant=grant(**{cap: 0.1})) as box,
    ):
        big = body(max_tokens=4000)
        statuses = [(await box.ask("POST", "/claude/v1/messages", body=big)).status for _ in range(5)]
        # The third is made shorter to fit into what is left.
        assert statuses == [200, 200, 200, 402, 402]
        assert 0.08 < box.ledger.spent() <= 0.1


@pytest.mark.spec("EG-6")
async def test_sixty_parallel_calls_never_pass_the_cap_and_wait_for_what_others_give_back(
    open_box: OpenBox,
) -> None:
    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        asked = request.json["max_tokens"]
        writer.write(answer(message(10, asked // 2)))

    async with stub(behave) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        highest = 0.0

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, box.ledger.spent())
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        big = body(max_tokens=128_000)
        replies = await asyncio.gather(*(box.ask("POST", "/claude/v1/messages", body=big) for _ in range(60)))
        watching.cancel()
        statuses = [reply.status for reply in replies]
        assert set(statuses) == {200, 402}
        assert max(highest, box.ledger.spent()) <= 3.0
        # Had calls not waited for each other, the first few would have been all.
        assert box.ledger.spent() > 2.8
        assert len(up.seen) == statuses.count(200) > 8  # how many exactly depends on who asks when


@pytest.mark.spec("EG-6")
async def test_the_answer_is_limited_to_what_is_left_and_thinking_stays_below_it(open_box: OpenBox) -> None:
    asked = body(max_tokens=128_000, thinking={"type": "enabled", "budget_tokens": 100_000})
    async with (
        stub(always(answer(message(50, 10)))) as up,
        open_box(providers={"claude": anthropic(up.url)}, grant=grant(issue_cap_usd=0.3)) as box,
    ):
        assert (await box.ask("POST", "/claude/v1/messages", body=asked)).status == 200
        sent = up.seen[0].json
        assert 8192 < sent["max_tokens"] < 15_000
        assert 1024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]


@pytest.mark.spec("EG-7")
@pytest.mark.parametrize("kind", ["anthropic", "openai", "gemini"])
async def test_a_model_without_a_price_is_refused_with_the_line_to_add(open_box: OpenBox, kind: str) -> None:
    targets = {
        "anthropic": "/up/v1/messages",
        "openai": "/up/responses",
        "gemini": "/up/v1beta/models/no-such-model-9:streamGenerateContent?alt=sse",
    }
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"up": anthropic(up.url, kind=kind, prices={})}) as box,
    ):
        reply = await box.ask("POST", targets[kind], body=body(model="no-such-model-9"))
        assert reply.status == 403
        line = reply.json["error"]["message"].partition("tokens: ")[2]
        assert Price.model_validate(tomllib.loads(line)["prices"]["no-such-model-9"]).output == 15
        assert "[providers.up]" in reply.json["error"]["message"]
        assert up.seen == []


@pytest.mark.spec("EG-7")
async def test_the_public_price_list_is_used_where_the_operator_names_no_price(open_box: OpenBox) -> None:
    usage = {"cache_read_input_tokens": 50_000, "cache_creation_input_tokens": 2000}
    document = json.loads(message(1000, 400, **usage))
    document["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 500}
    async with (
        stub(always(answer(json.dumps(document).encode()))) as up,
        open_box(providers={"claude": anthropic(up.url, prices={})}) as box,
    ):
        await box.ask("POST", "/claude/v1/messages", body=body(model="claude-opus-4-5"))
        assert box.ledger.spent() == pytest.approx(0.054375)


@pytest.mark.spec("EG-7")
async def test_an_operators_price_for_all_models_may_be_nothing(open_box: OpenBox) -> None:
    free = {"*": Price(input=0, output=0)}
    request = body(model="local", messages=[])
    async with (
        stub(always(answer(message(10**6, 10**6)))) as up,
        open_box(providers={"own": anthropic(up.url, kind="openai", key=None, prices=free)}) as box,
    ):
        assert (await box.ask("POST", "/own/v1/chat/completions", body=request)).status == 200
        assert up.seen[0].json == json.loads(request)
        assert up.seen[0].header("authorization") is None
        assert box.ledger.spent() == 0


@pytest.mark.spec("EG-8")
@pytest.mark.parametrize(
    ("status", "more", "failure"),
    [
        ("429 Too Many Requests", "Retry-After: 60\r\n", "429 until "),
        ("529 Overloaded", "", "529"),
        ("401 Unauthorized", "", "401"),
        ("400 Bad Request", "", None),
    ],
)
async def test_a_providers_error_is_passed_on_costs_nothing_and_is_recorded(
    open_box: OpenBox, status: str, more: str, failure: str | None
) -> None:
    reply = answer(b'{"error": "as it came"}', status=status, headers=more)
    async with stub(always(reply)) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        got = await box.ask("POST", "/claude/v1/messages", body=body())
        assert got.status == int(status[:3])
        assert got.body == b'{"error": "as it came"}'
        assert "x-should-retry" not in got.headers
        assert box.ledger.spent() == 0
        assert (box.attachment.provider_failure or "").startswith(failure or "")
        assert (box.attachment.provider_failure is None) == (failure is None)
        up.behaviour = always(answer(message()))
        await box.ask("POST", "/claude/v1/messages", body=body())
        assert box.attachment.provider_failure is None


@pytest.mark.spec("EG-8")
async def test_a_provider_that_is_not_there_is_a_502_that_costs_nothing(open_box: OpenBox) -> None:
    async with open_box(providers={"claude": anthropic("http://127.0.0.1:9")}) as box:
        reply = await box.ask("POST", "/claude/v1/messages", body=body())
        assert reply.status == 502
        assert "cannot be reached" in reply.json["error"]["message"]
        assert box.ledger.spent() == 0
        assert "cannot be reached" in (box.attachment.provider_failure or "")


@pytest.mark.spec("EG-9")
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/claude/v1/files"),
        ("POST", "/claude/v1/messages/batches"),
        ("POST", "/claude/v1/complete"),
        ("DELETE", "/claude/v1/models/m"),
        ("GET", "/claude/v1/messages"),
        ("GET", "/claude/"),
        ("GET", "/claude"),
        ("POST", "/claude//v1/messages"),
        ("POST", "/gpt/v1/images/generations"),
        ("POST", "/gem/v1beta/models/m:batchGenerateContent"),
    ],
)
async def test_only_known_endpoints_are_reached(open_box: OpenBox, method: str, target: str) -> None:
    async with stub(always(answer(message()))) as up:
        providers = {
            "claude": anthropic(up.url),
            "gpt": anthropic(up.url, kind="openai"),
            "gem": anthropic(up.url, kind="gemini"),
        }
        async with open_box(providers=providers) as box:
            assert (await box.ask(method, target, body=body())).status == 403
            assert up.seen == []
            assert len(box.events_of("EgressDenied")) == 1


@pytest.mark.spec("EG-9")
async def test_counting_tokens_and_listing_models_are_free(open_box: OpenBox) -> None:
    async with stub(always(answer(b"{}"))) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        assert (await box.ask("POST", "/claude/v1/messages/count_tokens", body=body(model="x"))).status == 200
        assert (await box.ask("GET", "/claude/v1/models/m")).status == 200
        assert [seen.header("x-api-key") for seen in up.seen] == [KEY, KEY]
        assert box.ledger.spent() == 0
        assert box.attachment.requests == 0


@pytest.mark.spec("EG-9")
async def test_a_sandbox_without_the_grant_talks_to_no_model(open_box: OpenBox) -> None:
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url)}, grant=grant(models=False)) as box,
    ):
        assert (await box.ask("POST", "/claude/v1/messages", body=body())).status == 403
        assert not any("PROVIDER" in name or "ANTHROPIC" in name for name in box.attachment.env)
        assert up.seen == []


@pytest.mark.spec("EG-10")
@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("/claude/v1/messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("/claude/v1/messages", {"mcp_servers": [{"url": "https://x"}]}),
        ("/claude/v1/messages", {"speed": "fast"}),
        (
            "/claude/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}]},
        ),
        ("/gpt/v1/responses", {"previous_response_id": "resp_1"}),
        ("/gpt/v1/responses", {"background": True}),
        ("/gpt/v1/chat/completions", {"n": 8}),
        ("/gpt/v1/chat/completions", {"n": [1]}),
        ("/gpt/v1/chat/completions", {"service_tier": "priority"}),
        ("/gem/v1beta/models/m:generateContent", {"cached_content": "x"}),
        ("/gem/v1beta/models/m:generateContent", {"tools": [{"googleSearch": {}}]}),
        ("/gem/v1beta/models/m:generateContent", {"generation_config": {"candidate_count": 4}}),
    ],
)
async def test_what_costs_more_than_its_size_tells_is_refused(
    open_box: OpenBox, target: str, more: dict[str, Any]
) -> None:
    async with stub(always(answer(message()))) as up:
        providers = {
            "claude": anthropic(up.url),
            "gpt": anthropic(up.url, kind="openai"),
            "gem": anthropic(up.url, kind="gemini"),
        }
        async with open_box(providers=providers) as box:
            reply = await box.ask("POST", target, body=body(**more))
            assert reply.status == 403
            assert "cannot be bounded" in json.dumps(reply.json)
            assert up.seen == []


@pytest.mark.spec("EG-11")
@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("where", ["json", "stream", "error", "header"])
async def test_a_key_that_comes_back_is_masked(open_box: OpenBox, where: str, size: int) -> None:
    echo = json.dumps(
        {"said": f"x-api-key: {KEY}", "usage": {"input_tokens": 1, "output_tokens": 1}}
    ).encode()
    whole = {
        "json": answer(echo),
        "stream": STREAM_HEAD + event("content_block_delta", text=KEY) + b"".join(stream_events()),
        "error": answer(echo, status="400 Bad Request"),
        "header": answer(echo, headers=f"X-Echo: {KEY}\r\n"),
    }[where]

    async def behave(request: Seen, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(whole), size):
            writer.write(whole[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)

    async with stub(behave) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        reply = await box.ask("POST", "/claude/v1/messages", body=body())
        assert up.seen[0].header("x-api-key") == KEY
        assert KEY not in f"{reply.headers} {reply.body!r}"
        assert "*" * len(KEY) in f"{reply.headers} {reply.body!r}"
        assert KEY not in str(box.events)


async def test_openai_streams_are_made_to_report_their_usage(open_box: OpenBox) -> None:
    chunks = [
        b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n',
        b'data: {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, '
        b'"prompt_tokens_details": {"cached_tokens": 40}}}\n\n',
        b"data: [DONE]\n\n",
    ]
    async with (
        stub(streaming(*chunks)) as up,
        open_box(providers={"gpt": anthropic(f"{up.url}/v1", kind="openai")}) as box,
    ):
        reply = await box.ask("POST", "/gpt/v1/chat/completions", body=body(stream=True))
        assert reply.body == b"".join(chunks)
        assert up.seen[0].target == "/v1/chat/completions"
        assert up.seen[0].header("authorization") == f"Bearer {KEY}"
        assert up.seen[0].json["stream_options"] == {"include_usage": True}
        assert box.ledger.usage(run="r")[0].cache_read_tokens == 40
        assert not box.ledger.usage(run="r")[0].estimated


async def test_gemini_is_keyed_limited_and_metered(open_box: OpenBox) -> None:
    data = {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 5}}
    async with (
        stub(streaming(f"data: {json.dumps(data)}\n\n".encode())) as up,
        open_box(providers={"gem": anthropic(up.url, kind="gemini")}) as box,
    ):
        request = {"contents": [], "generation_config": {"max_output_tokens": 10**7, "temperature": 0}}
        target = "/gem/v1beta/models/m:streamGenerateContent?alt=sse&key=mine"
        await box.ask("POST", target, body=json.dumps(request).encode())
        assert up.seen[0].target == "/v1beta/models/m:streamGenerateContent?alt=sse"
        assert up.seen[0].header("x-goog-api-key") == KEY
        config = up.seen[0].json["generationConfig"]
        assert config["temperature"] == 0
        assert config["maxOutputTokens"] < 10**6
        assert box.ledger.spent() == pytest.approx((100 + 15 * 10) / 1e6)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"max_tokens": 5}', b'{"model": 5}']
)
async def test_a_body_that_is_no_request_is_a_400(open_box: OpenBox, data: bytes) -> None:
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url)}) as box,
    ):
        reply = await box.ask("POST", "/claude/v1/messages", body=data)
        assert reply.status == 400
        assert reply.json["type"] == "error"
        assert up.seen == []


async def test_a_compressed_answer_is_refused_and_charged(open_box: OpenBox) -> None:
    reply = answer(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n")
    async with stub(always(reply)) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        assert (await box.ask("POST", "/claude/v1/messages", body=body())).status == 502
        assert box.ledger.usage(run="r")[0].estimated
        assert up.seen


async def test_models_are_reached_while_all_shared_threads_are_busy(open_box: OpenBox) -> None:
    free = threading.Event()
    loop = asyncio.get_running_loop()
    busy = [loop.run_in_executor(None, free.wait, 60) for _ in range(64)]
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url)}, resolver=resolve) as box,
    ):
        try:
            reader, writer = await begin(box.port, body())
            assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 200 \r\n"
            writer.close()
        finally:
            free.set()
            await asyncio.gather(*busy)


@pytest.mark.spec("EG-8")
async def test_an_error_that_cannot_be_read_costs_nothing_either(open_box: OpenBox) -> None:
    reply = answer(b"\x1f\x8b", status="500 Oops", headers="Content-Encoding: gzip\r\n")
    async with stub(always(reply)) as up, open_box(providers={"claude": anthropic(up.url)}) as box:
        assert (await box.ask("POST", "/claude/v1/messages", body=body())).status == 502
        assert up.seen
        assert box.ledger.spent() == 0
