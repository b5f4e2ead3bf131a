import asyncio
import json
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.testing.upstash.client import Client

from ironworks.testing.upstash import Options, UpstashEmulator
from ironworks.testing.upstash.egress import allowed, best_match

GET = "import urllib.request as u; print(u.urlopen('http://{}/v1?q=1', {}, timeout=20).read().decode())"


class Mirror(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        said = {"path": self.path, "host": self.headers["Host"], "headers": dict(self.headers.items())}
        body = json.dumps({**said, "body": self.rfile.read(size).decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
async def options() -> AsyncIterator[Options]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_port}"
    yield Options(hosts={"model.test": address, "api.other.test": address})
    server.shutdown()
    server.server_close()
    await asyncio.to_thread(thread.join, 10)


def fetch(host: str, data: str = "None") -> str:
    return f'python3 -c "{GET.format(host, data)}"'


@pytest.mark.slow
@pytest.mark.spec("SB-58")
async def test_headers_are_attached_outside_and_never_shown(
    client: Client, emulator: UpstashEmulator
) -> None:
    secret = {
        "model.test": {"x-api-key": "sk-test-real"},
        "*.other.test": {"Authorization": "Bearer sk-test-o"},
    }
    box = await client.create(attach_headers=secret)
    seen = json.loads(await client.out(box, fetch("model.test", "b'{}'")))
    assert (seen["path"], seen["host"], seen["body"]) == ("/v1?q=1", "model.test", "{}")
    assert seen["headers"]["x-api-key"] == "sk-test-real"
    other = json.loads(await client.out(box, fetch("api.other.test")))
    assert other["headers"]["Authorization"] == "Bearer sk-test-o" and "x-api-key" not in other["headers"]
    inside = await client.out(
        box, "env; cat /proc/[0-9]*/environ; grep -r sk- /etc/passwd /workspace /home /tmp; true"
    )
    shown = (await client.call("GET", f"/v2/box/{box}")).body + (await client.call("GET", "/v2/box")).body
    assert "sk-test-real" not in inside and b"sk-test" not in shown
    assert "sk-test" not in str([seen.body for seen in emulator.requests])
    assert [(e.host, e.outcome, e.attached) for e in emulator.exchanges(box)] == [
        ("model.test", "passed", ("x-api-key",)),
        ("api.other.test", "passed", ("Authorization",)),
    ]


@pytest.mark.slow
@pytest.mark.spec("SB-58")
async def test_the_policy_holds_and_can_be_changed(client: Client, emulator: UpstashEmulator) -> None:
    policy = {
        "mode": "custom",
        "allowed_domains": ["model.test"],
        "allowed_cidrs": None,
        "denied_cidrs": None,
    }
    box = await client.create(network_policy=policy)
    await client.out(box, fetch("model.test"))
    assert "403" in (await client.sh(box, fetch("api.other.test")))["error"]
    assert (await client.call("PUT", f"/v2/box/{box}/config/network-policy", mode="deny-all")).status == 200
    assert "403" in (await client.sh(box, fetch("model.test")))["error"]
    await client.call("PUT", f"/v2/box/{box}/config/network-policy", mode="allow-all")
    await client.out(box, fetch("api.other.test"))
    assert "502" in (await client.sh(box, fetch("nowhere.test")))["error"]
    outcomes = [exchange.outcome for exchange in emulator.exchanges()]
    assert outcomes == ["passed", "denied", "denied", "passed", "unknown"]


@pytest.mark.slow
@pytest.mark.spec("SB-58")
async def test_nothing_leads_out_of_a_box_but_its_proxy(client: Client, emulator: UpstashEmulator) -> None:
    box = await client.create()
    host, port = client.place
    script = f"import socket; socket.create_connection(('{host}', {port}), 5)"
    assert "refused" in (await client.sh(box, f'python3 -c "{script}"'))["error"].lower()
    assert (await client.out(box, "ls /sys/class/net 2>/dev/null; cut -d: -f1 -s /proc/net/dev")).split() == [
        "lo"
    ]


@pytest.mark.spec("SB-58")
@pytest.mark.parametrize(
    ("policy", "host", "verdict"),
    [
        ({}, "a.test", True),
        ({"mode": "deny-all"}, "a.test", False),
        ({"mode": "custom", "allowed_domains": ["*.a.test"]}, "b.a.test", True),
        ({"mode": "custom", "allowed_domains": ["*.a.test"]}, "a.test", False),
        ({"mode": "custom", "allowed_domains": ["a.test"]}, "xa.test", False),
        ({"mode": "custom", "allowed_domains": []}, "a.test", False),
        ({"mode": "custom", "denied_cidrs": ["10.0.0.0/8"]}, "a.test", True),
        (
            {"mode": "custom", "denied_cidrs": ["10.0.0.0/8"], "allowed_cidrs": ["10.1.0.0/16"]},
            "10.1.2.3",
            False,
        ),
        ({"mode": "custom", "allowed_cidrs": ["10.1.0.0/16"]}, "10.1.2.3", True),
        ({"mode": "custom", "allowed_cidrs": ["10.1.0.0/16"]}, "a.test", False),
    ],
)
def test_what_a_policy_means(policy: dict[str, object], host: str, verdict: bool) -> None:
    assert allowed(policy, host) is verdict


@pytest.mark.spec("SB-58")
def test_the_most_specific_pattern_wins() -> None:
    headers = {"*.test": {"a": "1"}, "*.b.test": {"a": "2"}, "c.b.test": {"a": "3"}}
    assert [best_match(headers, host) for host in ("x.test", "x.b.test", "c.b.test", "test")] == [
        {"a": "1"},
        {"a": "2"},
        {"a": "3"},
        {},
    ]


@pytest.mark.slow
@pytest.mark.spec("SB-55")
async def test_git_works_on_real_repositories(
    tmp_path: Path, client: Client, emulator: UpstashEmulator
) -> None:
    box = await client.create()
    await client.out(box, "git init -q -b main made && cd made && echo a > a")
    git = f"/v2/box/{box}/git"
    assert (await client.call("GET", git + "/status?folder=made")).data == {"status": "?? a\n"}
    made = (await client.call("POST", git + "/commit", message="one", folder="made")).data
    log = (await client.call("POST", git + "/exec", args=["log", "--format=%H %an"], folder="made")).data
    assert log == {"output": f"{made['sha']} Upstash Box\n", "exit_code": 0}
    assert (await client.call("POST", git + "/exec", args=["status"])).data["exit_code"] == 128
