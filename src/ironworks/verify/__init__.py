"""Proof that a branch does what it claims, without asking a model."""
