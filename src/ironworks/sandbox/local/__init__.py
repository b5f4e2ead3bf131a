"""The sandbox backend for Linux without a daemon."""

from ironworks.sandbox.local.backend import LocalBackend

__all__ = ["LocalBackend"]
