"""The sandbox backend on Upstash Box, a hosted service, through its official SDK."""

from ironworks.sandbox.upstash.backend import UpstashBackend

__all__ = ["UpstashBackend"]
