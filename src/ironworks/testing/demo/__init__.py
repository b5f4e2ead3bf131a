"""The repository, the backlog and the cast of `ironworks demo`."""
