"""From whatever bytes an agent left as its answer to a validated handoff, or to errors it can act on."""

import json
from typing import Any

from pydantic import ValidationError

from ironworks.core.models import Model

MAX_HANDOFF_BYTES = 16_000_000
MAX_ERRORS = 20


def parse_handoff(raw: str | bytes, model: type[Model]) -> Model | list[str]:
    """The handoff in `raw`, or why it is none: one line per error. Never raises for what is in it."""
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", "surrogatepass"))
    if size > MAX_HANDOFF_BYTES:
        return [f"it has {size} bytes, more than the {MAX_HANDOFF_BYTES} allowed"]
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        return ["it is nested too deeply"]
    except ValueError as error:
        begins = raw[:40] if isinstance(raw, str) else raw[:40].decode("utf-8", "replace")
        return [f"it is not JSON: {_short(str(error))}; it begins {begins!r}" if raw else "it is empty"]
    if not isinstance(data, dict):
        return ["it must be one JSON object"]
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        return [_line(detail["loc"], detail["msg"]) for detail in details[:MAX_ERRORS]]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON leaves open which of two equal keys counts: two readers could see two handoffs."""
    data = dict(pairs)
    if len(data) != len(pairs):
        name = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {_short(name)!r} is there twice")
    return data


def _line(place: tuple[int | str, ...], message: str) -> str:
    return f"{_short('.'.join(map(str, place))) or 'the whole'}: {_short(message)}"


def _short(text: str) -> str:
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    return shown.encode("utf-8", "replace").decode()
