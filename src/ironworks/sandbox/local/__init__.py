"""The sandbox backend for Linux without a daemon."""
