"""Approved branches become one green integration branch."""
