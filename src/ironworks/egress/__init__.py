"""The gateway: the only way out of a sandbox."""
