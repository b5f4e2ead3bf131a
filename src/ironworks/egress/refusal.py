"""A request that the gateway answers itself, with a status and a reason, instead of passing it on."""

from ironworks.core.errors import RefusedError


class Refusal(RefusedError):
    """`status` is the HTTP status of the answer; `reason` a stable kebab-case word; the message for agents.

    `denied` is true when policy said no, which is recorded, and false for a mere failure.
    """

    def __init__(self, status: int, reason: str, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.denied = denied


def denial(reason: str, message: str) -> Refusal:
    """Policy says no."""
    return Refusal(403, reason, message, denied=True)
