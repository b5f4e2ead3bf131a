import json

import pytest
from tests.testing.upstash.client import Client

pytestmark = pytest.mark.slow

RUNNER = """#!/usr/bin/python3
import json, pathlib, sys
print("event: text\\ndata: " + json.dumps({"text": " ".join(sys.argv[1:])}) + "\\n")
pathlib.Path("made.txt").write_text("made")
print("event: done\\ndata: " + json.dumps({"output": "well"}) + "\\n")
"""


@pytest.mark.spec("SB-55")
async def test_a_custom_agent_is_run_for_real(client: Client) -> None:
    runner = {"command": "/workspace/home/runner", "args": ["--loud"], "protocol": "box-sse-v1"}
    box = await client.create(agent="custom", model="mine", custom_runner=runner)
    await client.call("POST", f"/v2/box/{box}/files/write", path="runner", content=RUNNER)
    await client.out(box, "chmod +x runner")
    answer = await client.call("POST", f"/v2/box/{box}/run/stream", prompt="do it")
    said = answer.body.decode().split("\n\n")
    assert json.loads(said[0].partition("data: ")[2]) == {"text": "--loud -p do it --model mine --stream"}
    assert said[1].startswith("event: done")
    assert await client.out(box, "cat made.txt") == "made"
    plain = await client.create()
    assert (await client.call("POST", f"/v2/box/{plain}/run/stream", prompt="do it")).status == 400


@pytest.mark.spec("SB-55")
async def test_the_built_in_agent_says_what_it_is_told_to_say(client: Client) -> None:
    box = await client.create(agent="claude-code", model="any")
    body = (await client.call("POST", f"/v2/box/{box}/run/stream", prompt="Reply exactly: PONG")).body
    events = [line.removeprefix(b"event: ") for line in body.splitlines() if line.startswith(b"event: ")]
    assert events == [b"run_start", b"text", b"stats", b"done"]
    assert b'"output": "PONG"' in body
    runs = (await client.call("GET", f"/v2/box/{box}/runs")).data["runs"]
    assert [run["type"] for run in runs] == ["agent"]
