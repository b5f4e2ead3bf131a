"""The composition root: configuration becomes objects."""
