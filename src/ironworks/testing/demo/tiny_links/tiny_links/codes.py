"""Numbers written as short as letters and digits allow."""

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def encode(number):
    """`number` in base 62, without leading zeros."""
    code = ""
    while number:
        number, digit = divmod(number, len(ALPHABET))
        code = ALPHABET[digit] + code
    return code
