"""Isolated places to run what is not trusted."""
