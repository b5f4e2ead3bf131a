"""A typed wrapper over the git binary, and the depot: the only git."""
