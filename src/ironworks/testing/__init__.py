"""Public fakes: what tests and the demonstration use instead of the world outside."""
