"""Turns `env:NAME` and `file:PATH` into the secret they name. The values go to the gateway only."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ironworks.app.document import read_document
from ironworks.core.errors import ConfigError, MissingError

SECRET_BYTES = 65_536


class Secrets:
    """Looks in the process environment, then in the `.env` files given, in order. Keeps nothing."""

    def __init__(self, env_files: Sequence[Path], environ: Mapping[str, str] | None = None) -> None:
        self._env_files = tuple(env_files)
        self._environ = environ

    def resolve(self, reference: str) -> str:
        """The value behind `reference`; ConfigError, which never holds a value, when there is none."""
        kind, _, name = reference.partition(":")
        if kind == "env" and name:
            value = self._variable(name)
        elif kind == "file" and name:
            value = _content(Path(name).expanduser())
        else:
            raise ConfigError("a secret is named by env:NAME or file:PATH, never written down itself")
        value = value.strip("\r\n")
        if not value.strip():
            raise ConfigError(f"{reference} is empty", hint=self._hint(kind, name))
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise ConfigError(f"{reference} holds a control character, which no header may carry")
        return value

    def __call__(self, reference: str) -> str:
        return self.resolve(reference)

    def _variable(self, name: str) -> str:
        environ = os.environ if self._environ is None else self._environ
        if name in environ:
            return environ[name]
        for path in self._env_files:
            values = read_env_file(path)
            if name in values:
                return values[name]
        raise ConfigError(f"env:{name} is not set", hint=self._hint("env", name))

    def _hint(self, kind: str, name: str) -> str:
        if kind == "file":
            return f"put the secret into {name}"
        where = f", or write {name}=... into {self._env_files[0]}" if self._env_files else ""
        return f"export {name}{where}"


def read_env_file(path: Path) -> dict[str, str]:
    """`NAME=value` lines of a `.env` file; quotes and a leading `export` are understood, nothing expanded."""
    try:
        text = read_document(path, follow=False).decode("utf-8", "replace")
    except MissingError:
        return {}
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip().isidentifier():
            values[name.strip()] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _content(path: Path) -> str:
    try:
        return read_document(path, limit=SECRET_BYTES).decode("utf-8")
    except MissingError as error:
        raise ConfigError(f"file:{path} does not exist", hint=f"put the secret into {path}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"file:{path} is not text") from error
