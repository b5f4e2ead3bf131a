"""Remembers which exact `ironworks.toml` of which repository the operator has agreed to."""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from ironworks.app.document import read_document
from ironworks.app.place import state_home
from ironworks.core.errors import ConfigError, MissingError


class TrustStore:
    """Repository path → SHA-256 of the file's bytes, in the user's own state folder."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_home() / "trust.json"

    def trusts(self, repository: Path, data: bytes) -> bool:
        """Whether exactly these bytes were trusted for this repository."""
        return self._read().get(_key(repository)) == _digest(data)

    def record(self, repository: Path, data: bytes) -> str:
        """Trust these bytes, and no others, for this repository; their hash. Durable before it returns."""
        known = self._read() | {_key(repository): _digest(data)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".trust-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(known, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(self.path)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error
        return _digest(data)

    def _read(self) -> dict[str, str]:
        try:
            known = json.loads(read_document(self.path))
        except MissingError:
            return {}
        except ValueError as error:
            raise ConfigError(
                f"{self.path} is damaged", hint=f"remove it, then trust anew: rm {self.path}"
            ) from error
        return known if isinstance(known, dict) else {}


def _key(repository: Path) -> str:
    return os.fsencode(repository.resolve()).decode("utf-8", "backslashreplace")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
