"""What one attachment has done so far, for whoever supervises the sandbox."""

from dataclasses import dataclass, field

_TOKENS_PER_BYTE = 0.5
"""An upper bound for text, until an answer has said how many tokens a request really had."""
_MARGIN = 1.25
_LEAST_TOKENS_PER_BYTE = 0.25
_HIDDEN_TOKENS = 500
"""What providers add to a request of their own."""


@dataclass
class Tally:
    spent_usd: float = 0.0
    requests: int = 0
    """Model calls that were sent."""
    over_budget: bool = False
    provider_failure: str | None = None
    """What the provider last answered instead of an answer; None once one has come."""
    _ratios: dict[str, float] = field(default_factory=dict)

    def estimate(self, model: str, size: int) -> int:
        """Input tokens of a request of `size` bytes, from above."""
        return int(size * self._ratios.get(model, _TOKENS_PER_BYTE)) + _HIDDEN_TOKENS

    def learn(self, model: str, size: int, tokens: int) -> None:
        """A request of `size` bytes had `tokens` input tokens."""
        if size:
            self._ratios[model] = min(1.0, max(_LEAST_TOKENS_PER_BYTE, _MARGIN * tokens / size))
