"""Sums of money, in cents."""
