"""Writes the first `ironworks.toml` of a repository from what was guessed about it."""

import json
import os
from collections.abc import Mapping

from ironworks.app.detection import Guess

PROVIDERS = {
    "ANTHROPIC_API_KEY": ("anthropic", "https://api.anthropic.com", "claude-sonnet-4-5"),
    "OPENAI_API_KEY": ("openai", "https://api.openai.com", "gpt-5"),
    "GEMINI_API_KEY": ("gemini", "https://generativelanguage.googleapis.com", "gemini-2.5-pro"),
}
FALLBACK = "ANTHROPIC_API_KEY"


def starter(guess: Guess, base: str, environ: Mapping[str, str] | None = None) -> str:
    """The text of the file. Whatever came from the repository is quoted, so that it stays data."""
    values = os.environ if environ is None else environ
    variable = next((name for name in PROVIDERS if values.get(name)), FALLBACK)
    kind, url, model = PROVIDERS[variable]
    lines = [
        "# How this project is built and proved; the copy on the base branch counts.",
        "[project]",
        f"base = {_quoted(base)}",
        *_prepare(guess),
        f"test = {_quoted(guess.test)}"
        if guess.test
        else 'test = ""  # to be filled in: it must write {junit}',
        "",
        "# From here on only your own copy counts: `ironworks trust` after every change.",
        "[agent]",
        'use = "builtin"',
        f"model = {_quoted(f'{kind}/{model}')}",
        "",
        f"[providers.{kind}]",
        f"kind = {_quoted(kind)}",
        f"base_url = {_quoted(url)}",
        f"key = {_quoted(f'env:{variable}')}",
        "",
        "[budget]",
        "issue_usd = 3.0",
        "",
        "[limits]",
        "parallel = 5",
    ]
    if guess.network:
        hosts = ", ".join(map(_quoted, guess.network))
        lines += ["", "[network]", f"prepare = [{hosts}]  # while `prepare` runs; `allow` is for agents"]
    return "\n".join(lines) + "\n"


def _prepare(guess: Guess) -> list[str]:
    if not guess.prepare:
        return []
    return ["prepare = [", *(f"  {_quoted(command)}," for command in guess.prepare), "]"]


def _quoted(text: str) -> str:
    """A TOML basic string, in which everything can be seen: JSON's escapes are all among TOML's."""
    valid = text.encode("utf-8", "replace").decode("utf-8")  # Half a surrogate pair is no text in TOML.
    letters = json.dumps(valid, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in letters)
