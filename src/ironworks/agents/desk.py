"""What answers the `iw` tools of one attempt: check, ask, handoff and schema."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from ironworks.agents.handoff import parse_handoff
from ironworks.core.errors import IronworksError
from ironworks.core.models import Model
from ironworks.core.policy import loop_detected

MAX_QUESTION = 10_000
MAX_QUESTIONS = 20
TOLD = (
    "You have been here before: the same tree, with the same failures. Do something else, or hand off with "
    "status blocked. Once more, and you are stopped.\n\n"
)
STOPPED = "You went in circles: the same tree with the same failures, again. This attempt is over.\n\n"

Answer = tuple[int, bytes]


class CheckResult(Model):
    """What a check tells the agent. `fingerprint`: of the tree and its failures; `ok`: none is new."""

    text: str
    fingerprint: str
    ok: bool = True


class ToolDesk:
    """The gateway's `Tools` of one attempt: `await desk(verb, body)` gives a status and a text.

    200 is well; 422 means that tests fail newly, or that the handoff is invalid; 409 that the worker is in a
    loop and must stop; 404 that the stage has no such tool; 503 that the factory could not do it.
    """

    def __init__(
        self,
        answer: type[Model],
        *,
        check: Callable[[], Awaitable[CheckResult]] | None = None,
        on_ask: Callable[[str], Awaitable[str]] | None = None,
        fingerprints: tuple[str, ...] = (),
    ) -> None:
        """`on_ask` gets a question and says what to tell the agent; `fingerprints`: of earlier attempts."""
        self.handoff: Model | None = None
        """The last valid one submitted here."""
        self.fingerprints = list(fingerprints)
        self.looping = asyncio.Event()
        """Set when the worker came back to where it was a second time."""
        self.questions: list[str] = []
        self._answer = answer
        self._check = check
        self._on_ask = on_ask
        self._one_check = asyncio.Lock()

    @property
    def checking(self) -> bool:
        """Whether a check runs: its worker is silent meanwhile, and waits for us."""
        return self._one_check.locked()

    async def __call__(self, verb: str, body: bytes) -> Answer:
        try:
            if verb == "check" and self._check:
                return await self._checked(self._check)
            if verb == "ask" and self._on_ask:
                return await self._asked(body, self._on_ask)
        except IronworksError as error:
            return 503, f"{verb} is not possible now: {error.message}".encode()
        if verb == "handoff":
            return self._handed(body)
        if verb == "schema":
            return 200, json.dumps(self._answer.model_json_schema(), indent=1).encode()
        return 404, f"there is no tool {verb!r} here".encode("utf-8", "replace")

    async def _checked(self, check: Callable[[], Awaitable[CheckResult]]) -> Answer:
        async with self._one_check:
            result = await check()
            before = loop_detected(self.fingerprints)
            self.fingerprints.append(result.fingerprint)
        loop = loop_detected(self.fingerprints)
        if loop == "stop":
            self.looping.set()
            return 409, (STOPPED + result.text).encode("utf-8", "replace")
        told = TOLD if loop != before else ""
        return 200 if result.ok else 422, (told + result.text).encode("utf-8", "replace")

    async def _asked(self, body: bytes, on_ask: Callable[[str], Awaitable[str]]) -> Answer:
        question = _question(body)
        if not question:
            return 422, b'give the question: {"question": "..."}'
        if len(self.questions) >= MAX_QUESTIONS:
            return 422, b"that is enough questions: hand off with status needs_input"
        self.questions.append(question)
        return 200, (await on_ask(question)).encode("utf-8", "replace")

    def _handed(self, body: bytes) -> Answer:
        parsed = parse_handoff(body, self._answer)
        if isinstance(parsed, list):
            return 422, "\n".join(["the handoff is not valid:", *parsed]).encode("utf-8", "replace")
        self.handoff = parsed
        return 200, b"accepted"


def _question(body: bytes) -> str:
    """The question in a JSON object, at most MAX_QUESTION characters; empty when there is none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    question = data.get("question") if isinstance(data, dict) else None
    # Lone surrogates can be written in JSON but not stored.
    text = question.encode("utf-8", "replace").decode() if isinstance(question, str) else ""
    return text.strip()[:MAX_QUESTION]
