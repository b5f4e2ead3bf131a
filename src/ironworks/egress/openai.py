"""OpenAI's chat completions and responses APIs, and the many servers that speak them."""

import re
from collections.abc import Mapping
from typing import Any

from ironworks.egress.dialect import Dialect, ErrorKind, Json, objects, tool_types, whole
from ironworks.egress.tokens import Tokens, count, part

_CLIENT_TOOLS = {"function", "custom", "local_shell", "apply_patch"}
_SERVER_STATE = ("previous_response_id", "conversation", "background", "web_search_options", "prompt")
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class OpenAIDialect(Dialect):
    prices = "openai"
    metered = re.compile(r"(/v1)?/(chat/completions|responses)")
    free = (("GET", re.compile(r"(/v1)?/models(/[A-Za-z0-9._:/-]+)?")),)
    # Codex asks six times after any other refusal.
    budget_status = 400
    says_when_done = False

    def key_header(self, key: str) -> tuple[str, str]:
        return "authorization", f"Bearer {key}"

    def env(self, url: str) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "dummy"}

    def model(self, path: str, body: Json) -> str:
        model = body.get("model")
        return model if isinstance(model, str) else ""

    def limit(self, body: Json) -> int | None:
        asked = [limit for name in _LIMITS if (limit := whole(body.get(name))) is not None]
        return max(asked, default=None)

    def limited(self, body: Json, limit: int) -> Json:
        default = "max_completion_tokens" if "messages" in body else "max_output_tokens"
        name = next((name for name in _LIMITS if body.get(name) is not None), default)
        return {**{key: value for key, value in body.items() if key not in _LIMITS}, name: limit}

    def prepared(self, body: Json) -> Json:
        if body.get("stream") is True and "messages" in body:
            return {**body, "stream_options": {**part(body, "stream_options"), "include_usage": True}}
        return body

    def unbounded(self, body: Json) -> str:
        for tool in tool_types(body):
            if tool not in _CLIENT_TOOLS:
                return f"the server-side tool {tool[:40]!r}"
        for name in _SERVER_STATE:
            if body.get(name):
                return repr(name)
        if body.get("n") not in (None, 1):
            return "more than one choice"
        if body.get("service_tier") not in (None, "auto", "default", "flex"):
            return "a service tier with another price"
        if any(
            "file_id" in item or "file_url" in item
            for item in objects(body.get("input") or body.get("messages"))
        ):
            return "content that is not in the request"
        return ""

    def usage(self, document: Json) -> Mapping[str, Any] | None:
        usage = document.get("usage") or part(document, "response").get("usage")
        return usage if isinstance(usage, Mapping) else None

    def ends(self, document: Json) -> bool:
        return document.get("type") in _LAST

    def tokens(self, usage: Mapping[str, Any]) -> Tokens:
        chat = "prompt_tokens" in usage
        details = part(usage, "prompt_tokens_details" if chat else "input_tokens_details")
        return Tokens(
            input=count(usage, "prompt_tokens" if chat else "input_tokens"),
            output=count(usage, "completion_tokens" if chat else "output_tokens"),
            cache_read=count(details, "cached_tokens"),
        )

    def error(self, status: int, kind: ErrorKind, message: str) -> Json:
        types = {"budget": "insufficient_quota", "denied": "invalid_request_error", "failed": "server_error"}
        return {"error": {"message": message, "type": types[kind], "code": types[kind], "param": None}}
