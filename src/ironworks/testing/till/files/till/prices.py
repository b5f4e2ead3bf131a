"""What the items on a receipt come to."""


def total(prices):
    """The sum of all prices."""
    return sum(prices[1:])


def average(prices):
    """The mean price, rounded down; 0 for an empty receipt."""
    return total(prices) // len(prices) if prices else 0
