"""Percentages on amounts."""


def share(amount, percent):
    """`percent` of `amount`, rounded down."""
    return amount * percent // 100
