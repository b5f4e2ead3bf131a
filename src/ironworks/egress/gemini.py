"""Google's Gemini API."""

import re
from collections.abc import Mapping
from typing import Any

from ironworks.egress.dialect import Dialect, ErrorKind, Json, objects, whole
from ironworks.egress.tokens import Tokens, count

_MODEL = r"/v1(?:beta)?/models/[A-Za-z0-9._-]+"


def _either(body: Any, camel: str) -> Any:
    """A field by either of the two names under which the API takes it."""
    snake = re.sub("[A-Z]", lambda capital: "_" + capital[0].lower(), camel)
    if not isinstance(body, Mapping):
        return None
    return body.get(camel) if body.get(camel) is not None else body.get(snake)


class GeminiDialect(Dialect):
    prices = "google"
    metered = re.compile(_MODEL + ":(generate|streamGenerate)Content")
    free = (
        ("POST", re.compile(_MODEL + ":countTokens")),
        ("GET", re.compile(rf"/v1(beta)?/models|{_MODEL}")),
    )
    budget_status = 402
    says_when_done = False

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-goog-api-key", key

    def env(self, url: str) -> dict[str, str]:
        return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy"}

    def model(self, path: str, body: Json) -> str:
        return path.rpartition("/")[2].partition(":")[0]

    def limit(self, body: Json) -> int | None:
        return whole(_either(_either(body, "generationConfig"), "maxOutputTokens"))

    def limited(self, body: Json, limit: int) -> Json:
        config = _either(body, "generationConfig")
        config = dict(config) if isinstance(config, Mapping) else {}
        config.pop("max_output_tokens", None)
        config["maxOutputTokens"] = limit
        rest = {key: value for key, value in body.items() if key != "generation_config"}
        return {**rest, "generationConfig": config}

    def prepared(self, body: Json) -> Json:
        return body

    def unbounded(self, body: Json) -> str:
        tools = body.get("tools")
        for tool in tools if isinstance(tools, list) else []:
            foreign = (
                set(tool) - {"functionDeclarations", "function_declarations"}
                if isinstance(tool, dict)
                else set()
            )
            if foreign:
                return f"the server-side tool {min(foreign)[:40]!r}"
        if _either(body, "cachedContent"):
            return "'cachedContent'"
        if _either(_either(body, "generationConfig"), "candidateCount") not in (None, 1):
            return "more than one candidate"
        if any(_either(item, "fileData") for item in objects(body.get("contents"))):
            return "content that is not in the request"
        return ""

    def usage(self, document: Json) -> Mapping[str, Any] | None:
        usage = document.get("usageMetadata")
        return usage if isinstance(usage, Mapping) else None

    def ends(self, document: Json) -> bool:
        # Every event carries the usage so far: only the end of the stream tells.
        return False

    def tokens(self, usage: Mapping[str, Any]) -> Tokens:
        return Tokens(
            input=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
            output=count(usage, "candidatesTokenCount") + count(usage, "thoughtsTokenCount"),
            cache_read=count(usage, "cachedContentTokenCount"),
        )

    def error(self, status: int, kind: ErrorKind, message: str) -> Json:
        states = {"budget": "RESOURCE_EXHAUSTED", "denied": "PERMISSION_DENIED", "failed": "UNAVAILABLE"}
        return {"error": {"code": status, "message": message, "status": states[kind]}}
