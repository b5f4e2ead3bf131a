"""The forge without a server: backlog.md and shared records in a git repository."""
