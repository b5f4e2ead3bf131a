import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ironworks.agents.desk import CheckResult, ToolDesk
from ironworks.core.errors import SandboxError
from ironworks.core.handoffs import TriageReport, WorkReport


def checks(fingerprints: str, *, ok: bool = False) -> Callable[[], Awaitable[CheckResult]]:
    results: Iterator[str] = iter(fingerprints)

    async def check() -> CheckResult:
        return CheckResult(text="test_x fails", fingerprint=next(results), ok=ok)

    return check


@pytest.mark.spec("AG-14")
async def test_a_valid_handoff_is_accepted_and_kept() -> None:
    desk = ToolDesk(WorkReport)
    assert await desk("handoff", b'{"status": "done", "summary": "a"}') == (200, b"accepted")
    assert desk.handoff == WorkReport(status="done", summary="a")


@pytest.mark.spec("AG-14")
async def test_an_invalid_handoff_is_answered_with_its_errors_and_not_kept() -> None:
    desk = ToolDesk(WorkReport)
    status, text = await desk("handoff", b'{"status": "great"}')
    assert status == 422
    assert b"summary: Field required" in text
    assert desk.handoff is None


async def test_the_schema_is_the_one_of_the_stage() -> None:
    status, text = await ToolDesk(TriageReport)("schema", b"")
    assert status == 200
    assert json.loads(text) == TriageReport.model_json_schema()


@pytest.mark.spec("AG-14")
async def test_a_worker_in_a_loop_is_told_once_and_then_stopped() -> None:
    desk = ToolDesk(WorkReport, check=checks("abcada"))
    answers = [await desk("check", b"") for _ in "abcada"]
    assert [status for status, _ in answers] == [422, 422, 422, 422, 422, 409]
    assert [b"You have been here before" in text for _, text in answers] == [False] * 3 + [True] + [False] * 2
    assert desk.looping.is_set()


@pytest.mark.spec("AG-14")
async def test_earlier_attempts_count_for_a_loop() -> None:
    desk = ToolDesk(WorkReport, check=checks("a"), fingerprints=("a", "b", "a", "b"))
    assert (await desk("check", b""))[0] == 409


async def test_repeating_a_check_without_a_change_is_no_loop() -> None:
    desk = ToolDesk(WorkReport, check=checks("aaaa", ok=True))
    assert [await desk("check", b"") for _ in range(4)] == [(200, b"test_x fails")] * 4


async def test_checks_run_one_at_a_time() -> None:
    running = most = 0

    async def check() -> CheckResult:
        nonlocal running, most
        assert desk.checking
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return CheckResult(text="", fingerprint="a")

    desk = ToolDesk(WorkReport, check=check)
    await asyncio.gather(*(desk("check", b"") for _ in range(5)))
    assert most == 1
    assert not desk.checking


async def test_a_question_is_passed_on_and_bounded() -> None:
    asked = []

    async def on_ask(question: str) -> str:
        asked.append(question)
        return "noted"

    desk = ToolDesk(WorkReport, on_ask=on_ask)
    assert await desk("ask", b'{"question": " why\\ud800? "}') == (200, b"noted")
    assert (await desk("ask", json.dumps({"question": "x" * 50_000}).encode()))[0] == 200
    assert [len(question) for question in asked] == [5, 10_000]
    assert asked[0] == "why??"
    statuses = [(await desk("ask", b'{"question": "again"}'))[0] for _ in range(30)]
    assert (statuses.count(200), statuses.count(422)) == (18, 12)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"\xff", b'{"question": 1}', b'{"question": " "}', b"[" * 100_000]
)
async def test_a_body_without_a_question_is_refused(body: bytes) -> None:
    async def on_ask(question: str) -> str:
        raise AssertionError(question)

    assert (await ToolDesk(WorkReport, on_ask=on_ask)("ask", body))[0] == 422


@pytest.mark.parametrize("verb", ["check", "ask", "docs", "", "../x", "\ud800"])
async def test_a_tool_the_stage_does_not_have_is_not_found(verb: str) -> None:
    assert (await ToolDesk(TriageReport)(verb, b"{}"))[0] == 404


async def test_a_check_that_cannot_run_says_so() -> None:
    async def check() -> CheckResult:
        raise SandboxError("it died")

    status, text = await ToolDesk(WorkReport, check=check)("check", b"")
    assert status == 503
    assert b"it died" in text
