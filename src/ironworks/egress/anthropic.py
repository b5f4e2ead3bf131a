"""Anthropic's Messages API."""

import re
from collections.abc import Mapping
from typing import Any

from ironworks.egress.dialect import Dialect, ErrorKind, Json, objects, tool_types, whole
from ironworks.egress.tokens import Tokens, count, part

_SERVER_TOOLS = ("web_search", "web_fetch", "code_execution", "mcp", "advisor")
_SERVER_STATE = ("container", "mcp_servers", "speed", "inference_geo", "fallbacks")
_LEAST_THINKING = 1024


class AnthropicDialect(Dialect):
    prices = "anthropic"
    metered = re.compile(r"/v1/messages")
    free = (
        ("POST", re.compile(r"/v1/messages/count_tokens")),
        ("GET", re.compile(r"/v1/models(/[A-Za-z0-9._:-]+)?")),
    )
    budget_status = 402
    says_when_done = True

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-api-key", key

    def env(self, url: str) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy"}

    def model(self, path: str, body: Json) -> str:
        model = body.get("model")
        return model if isinstance(model, str) else ""

    def limit(self, body: Json) -> int | None:
        return whole(body.get("max_tokens"))

    def limited(self, body: Json, limit: int) -> Json:
        changed = {**body, "max_tokens": limit}
        thinking = part(body, "thinking")
        budget = whole(thinking.get("budget_tokens"))
        if budget is not None and budget >= limit:
            # The provider wants 1024 <= budget_tokens < max_tokens.
            less = max(_LEAST_THINKING, limit // 2)
            changed["thinking"] = (
                {**thinking, "budget_tokens": less} if less < limit else {"type": "disabled"}
            )
        return changed

    def prepared(self, body: Json) -> Json:
        return body

    def unbounded(self, body: Json) -> str:
        for tool in tool_types(body):
            if tool.startswith(_SERVER_TOOLS):
                return f"the server-side tool {tool[:40]!r}"
        for name in _SERVER_STATE:
            if body.get(name):
                return repr(name)
        for item in objects(body.get("messages")):
            if part(item, "source").get("type") in ("file", "url"):
                return "content that is not in the request"
        return ""

    def usage(self, document: Json) -> Mapping[str, Any] | None:
        usage = part(document, "message").get("usage") or document.get("usage")
        return usage if isinstance(usage, Mapping) else None

    def ends(self, document: Json) -> bool:
        return document.get("type") == "message_stop"

    def tokens(self, usage: Mapping[str, Any]) -> Tokens:
        read, written = count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
        return Tokens(
            input=count(usage, "input_tokens") + read + written,
            output=count(usage, "output_tokens"),
            cache_read=read,
            cache_write=written,
            cache_write_1h=min(written, count(part(usage, "cache_creation"), "ephemeral_1h_input_tokens")),
        )

    def error(self, status: int, kind: ErrorKind, message: str) -> Json:
        types = {"budget": "billing_error", "denied": "permission_error", "failed": "api_error"}
        return {"type": "error", "error": {"type": types[kind], "message": message}}
