"""What tokens cost: the operator's own prices first, then the public price list."""

import json

from ironworks.core.settings import Price, ProviderSettings
from ironworks.egress.dialect import Dialect
from ironworks.egress.refusal import Refusal, denial
from ironworks.egress.tokens import Tokens

_WRITE = 1.25
"""What writing to a cache costs, next to reading the input, where the operator does not say."""
_LONG = 1.6
"""What a cache that lives an hour costs, next to one of five minutes."""


class PriceList:
    """Prices of one provider's models in US dollars."""

    def __init__(self, name: str, settings: ProviderSettings, dialect: Dialect) -> None:
        self._name = name
        self._own = settings.prices
        self._base_url = settings.base_url
        self._public_name = dialect.prices

    def cost(self, model: str, tokens: Tokens) -> float:
        """Refusal for a model that nobody knows the price of: a budget could not hold."""
        own = self._own.get(model) or self._own.get("*")
        if own is not None:
            return _own_cost(own, tokens)
        cost = _public_cost(self._base_url, self._public_name, model, tokens)
        if cost is None:
            raise self._unknown(model)
        return cost

    def _unknown(self, model: str) -> Refusal:
        quoted = json.dumps(model[:100])
        return denial(
            "unknown-price",
            f"The price of model {quoted} is not known, so no budget could hold. Add to ironworks.toml, "
            f"under [providers.{self._name}], with US dollars per million tokens: "
            f"prices.{quoted} = {{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }}",
        )


def _own_cost(price: Price, tokens: Tokens) -> float:
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input * _WRITE if price.cache_write is None else price.cache_write
    fresh = max(0, tokens.input - tokens.cache_read - tokens.cache_write)
    written = (tokens.cache_write - tokens.cache_write_1h) * write + tokens.cache_write_1h * write * _LONG
    dollars = fresh * price.input + tokens.cache_read * read + written + tokens.output * price.output
    return dollars / 1e6


def _public_cost(base_url: str, public_name: str, model: str, tokens: Tokens) -> float | None:
    # Half a second of work, needed only when the operator names no price.
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        **({"cache_write_1h_tokens": tokens.cache_write_1h} if tokens.cache_write_1h else {}),
    )
    try:
        return float(calc_price(usage, model, provider_api_url=base_url).total_price)
    except (LookupError, ValueError):
        pass
    # An address that the list does not know: a proxy, or the provider's own under another name.
    try:
        return float(calc_price(usage, model, provider_id=public_name).total_price)
    except (LookupError, ValueError):
        return None
