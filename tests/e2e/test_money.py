"""Budgets, providers and loops, with the builtin agent and a model that plays a script."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.workshop import Workshop, states

from ironworks.testing.model import ScriptedModel
from ironworks.testing.script import Script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WRITE = {"kind": "write", "path": "till/one.py", "content": "def one():\n    return 1\n"}
TEST = {
    "kind": "write",
    "path": "tests/test_one.py",
    "content": "import unittest\nfrom till.one import one\n\n\nclass TestOne(unittest.TestCase):\n"
    "    def test_it(self):\n        self.assertEqual(one(), 1)\n",
}
DONE = {"kind": "handoff", "value": {"status": "done", "summary": "done", "tests_pass": True}}


async def run(
    folder: Path, steps: list[dict[str, Any]], more: str = ""
) -> tuple[Workshop, ScriptedModel, Any]:
    """A run of one issue whose worker plays `steps`; the model keeps its record."""
    script = Script.model_validate({"scenes": [{"stage": "work", "steps": steps}]})
    (folder / ".env").write_text("TILL_KEY=sk-test-till\n", "utf-8")
    async with ScriptedModel(script) as model:
        shop = Workshop(folder, {"One": {}})
        provider = f'key = "env:TILL_KEY"\nbase_url = "{model.base_url}"\n'
        prices = 'prices = { "*" = { input = 3.0, output = 15.0 } }\n'
        agent = '[agent]\nuse = "builtin"\nmodel = "scripted/till-1"\n'
        shop.config.write_text(f"{agent}[providers.scripted]\n{provider}{prices}{more}", "utf-8")
        code, report = await asyncio.to_thread(shop.run)
        return shop, model, (code, report)


@pytest.mark.spec("EN-17")
async def test_the_builtin_agent_lands_an_issue_and_the_money_is_counted(tmp_path: Path) -> None:
    _, model, (code, report) = await run(tmp_path, [WRITE, TEST, {"kind": "check"}, DONE])

    assert (code, states(report)) == (0, {"One": "landed"})
    tokens = model.tokens()
    assert report["cost_usd"] == pytest.approx(
        (tokens.input_tokens * 3 + tokens.output_tokens * 15) / 1e6, abs=1e-4
    )
    assert all(exchange.key == "sk-test-till" for exchange in model.exchanges)


@pytest.mark.spec("EN-18")
async def test_a_runaway_spender_is_stopped_before_its_cap_and_parked_with_its_work(tmp_path: Path) -> None:
    expensive = {"input_tokens": 1000, "output_tokens": 12_000}
    steps: list[dict[str, Any]] = [WRITE]
    steps += ({"kind": "bash", "command": f"true {n}", "usage": expensive} for n in range(40))

    shop, _, (code, report) = await run(tmp_path, steps, "[budget]\nissue_usd = 1.0\n")

    [issue] = report["issues"]
    assert (code, issue["state"], issue["reason"]) == (1, "parked", "over_budget")
    assert 0 < report["cost_usd"] <= 1.0
    assert issue["evidence"]["work"]["ghost"] is True
    assert (
        "retry" in report["next"]
        and shop.ironworks(*report["next"].split()[1:3], "--budget-usd", "9")[0] == 0
    )


@pytest.mark.spec("EN-19")
async def test_a_provider_that_refuses_parks_the_issue_as_such(tmp_path: Path) -> None:
    fault = {"kind": "status", "status": 401, "headers": {"x-should-retry": "false"}}
    _, _, (code, report) = await run(tmp_path, [{**WRITE, "fault": fault}], "[limits]\nattempts = 1\n")

    [issue] = report["issues"]
    assert (code, issue["state"], issue["reason"]) == (1, "parked", "provider")
    assert "401" in issue["detail"]


@pytest.mark.spec("EN-20")
async def test_a_worker_that_goes_in_circles_is_told_once_then_parked_as_looping(tmp_path: Path) -> None:
    def wrong(value: int) -> list[dict[str, Any]]:
        return [{**WRITE, "content": f"def one():\n    return {value}\n"}, {"kind": "check"}]

    steps = [TEST, *wrong(2), *wrong(3), *wrong(2), *wrong(3), *wrong(2), DONE]
    _, model, (code, report) = await run(tmp_path, steps)

    [issue] = report["issues"]
    assert (code, issue["state"], issue["reason"]) == (1, "parked", "looping")
    assert 6 <= len(model.select(stage="work")) <= len(steps)
