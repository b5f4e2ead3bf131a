"""Cutting what programs said to a size."""

CUT = " … "


def excerpt(text: str, most: int) -> str:
    """At most `most` characters of `text`: how it begins, and above all its last words."""
    if len(text) <= most:
        return text
    first = most // 4
    last = most - first - len(CUT)
    return f"{text[:first]}{CUT}{text[-last:]}" if last > 0 else text[len(text) - most :]
