"""Reads a small file that somebody else may have prepared: no devices, no pipes, no surprises in size."""

import os
import stat
from pathlib import Path

from ironworks.core.errors import ConfigError, MissingError

DOCUMENT_BYTES = 1_048_576


def read_document(path: Path, *, follow: bool = True, limit: int = DOCUMENT_BYTES) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    `follow=False` refuses a symbolic link: a file that comes with a stranger's repository may point anywhere.
    MissingError when there is none, ConfigError when it is not such a file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        if not follow and path.is_symlink():
            raise ConfigError(f"{path} is a symbolic link", hint="put the file itself there")
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ConfigError(f"{path} is larger than {limit} bytes")
    return data
