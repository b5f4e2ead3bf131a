"""Programs that run inside a sandbox, on the standard library and git alone (Python >= 3.8)."""
