"""Hosts that are not providers: plain http, and https by a route of the gateway's own."""

import asyncio
import os
import re
import shutil
import subprocess
from asyncio import to_thread

import pytest
from tests.egress.conftest import KEY, OpenBox, grant
from tests.egress.stub import always, answer, stub

from ironworks.core.errors import ConfigError
from ironworks.core.settings import NetworkSettings
from ironworks.egress.forward import Attached
from ironworks.egress.tunnel import server_name


def headers(where: str) -> NetworkSettings:
    return NetworkSettings(headers={where: {"X-Token": "env:KEY"}})


@pytest.mark.spec("EG-17")
async def test_plain_http_is_proxied_to_an_allowed_host(open_box: OpenBox) -> None:
    async with stub(always(answer(b"page", headers="Set-Cookie: a=b\r\n"))) as up:
        rule = f"up.example:{up.port}=127.0.0.1"
        async with open_box(grant=grant(allow=(rule,))) as box:
            sent = {"Host": "evil.example", "Authorization": "mine", "Proxy-Authorization": "p"}
            reply = await box.ask("GET", f"http://UP.example:{up.port}/a?token=1", headers=sent)
            assert (reply.status, reply.body) == (200, b"page")
            assert reply.headers["set-cookie"] == "a=b"
            [seen] = up.seen
            assert seen.target == "/a?token=1"
            assert seen.header("host") == f"up.example:{up.port}"
            assert seen.header("authorization") == "mine"
            assert seen.header("proxy-authorization") is None


@pytest.mark.spec("EG-17")
async def test_headers_are_attached_for_their_host_and_port_and_scrubbed_from_the_answer(
    open_box: OpenBox,
) -> None:
    async with stub(always(answer(f"you sent {KEY}".encode()))) as up:
        rules = (f"up.example:{up.port}=127.0.0.1", f"other.example:{up.port}=127.0.0.1")
        network = headers(f"up.example:{up.port}")
        async with open_box(network=network, grant=grant(allow=rules)) as box:
            sent = {"x_token": "mine", "Authorization": "mine"}
            reply = await box.ask("GET", f"http://up.example:{up.port}/?token=1&a=b", headers=sent)
            assert reply.body == b"you sent " + b"*" * len(KEY)
            await box.ask("GET", f"http://other.example:{up.port}/", headers=sent)
            first, second = up.seen
            assert first.target == "/?a=b"
            assert [value for name, value in first.headers if "token" in name.lower()] == [KEY]
            assert first.header("authorization") is None
            assert KEY not in str(second.headers)


@pytest.mark.spec("EG-17")
async def test_headers_of_a_bare_host_never_go_out_in_the_clear(open_box: OpenBox) -> None:
    async with stub(always(answer(b"page"))) as up:
        network = headers("up.example")
        async with open_box(network=network, grant=grant(allow=(f"up.example:{up.port}=127.0.0.1",))) as box:
            await box.ask("GET", f"http://up.example:{up.port}/")
            assert KEY not in str(up.seen[0].headers)


@pytest.mark.spec("EG-17")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/", 403),
        ("http://up.example/", 403),
        ("http://up.example@evil.example/", 403),
        ("http://up.example:80@evil.example/", 403),
        ("http://127.0.0.1/", 403),
        ("http://evil.example#up.example/", 403),
        ("https://up.example/", 400),
        ("ftp://up.example/", 400),
        ("up.example/", 400),
        ("*", 400),
        ("/host/evil.example/", 403),
        ("/host/127.0.0.1/", 403),
        ("/host/user@up.example/", 403),
        ("/host/", 403),
        ("/host/up.example/../../tools/check", 400),
    ],
)
async def test_other_targets_reach_nobody(open_box: OpenBox, target: str, status: int) -> None:
    async with open_box(grant=grant(allow=("up.example",)), names={"up.example": ["127.0.0.2"]}) as box:
        reply = await box.raw(
            f"GET {target} HTTP/1.1\r\nHost: up.example\r\nConnection: close\r\n\r\n".encode()
        )
        assert reply.startswith(f"HTTP/1.1 {status}".encode())
        assert len(box.events_of("EgressDenied")) == (status == 403)


async def test_the_https_route_talks_tls_to_the_host_and_nothing_else(open_box: OpenBox) -> None:
    heard = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = headers(f"up.example:{port}")
    async with open_box(network=network, grant=grant(allow=(f"up.example:{port}=127.0.0.1",))) as box:
        assert (await box.ask("GET", f"/host/up.example:{port}/x")).status == 502
    server.close()
    assert [server_name(data) for data in heard] == ["up.example"]
    assert KEY.encode() not in heard[0]


def test_a_header_for_what_is_no_host_is_an_error() -> None:
    with pytest.raises(ConfigError, match=re.escape("127.0.0.1")):
        Attached({"127.0.0.1": {"x": "env:KEY"}}, lambda where: KEY)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl_uses_the_proxy_variables_and_reads_why_it_was_refused(open_box: OpenBox) -> None:
    async with (
        stub(always(answer(b"page"))) as up,
        open_box(grant=grant(allow=(f"up.example:{up.port}=127.0.0.1",))) as box,
    ):
        proxy = f"http://127.0.0.1:{box.port}"
        env = {"PATH": os.environ["PATH"], "http_proxy": proxy, "HTTPS_PROXY": proxy}

        def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = ["curl", "-sS", "--max-time", "20", *arguments]
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)

        assert (await to_thread(curl, f"http://up.example:{up.port}/")).stdout == "page"
        refused = await to_thread(curl, "http://evil.example/")
        assert "evil.example:80 is not on this sandbox's allow-list" in refused.stdout
        tunnel = await to_thread(curl, "https://evil.example/")
        assert "403" in tunnel.stderr
