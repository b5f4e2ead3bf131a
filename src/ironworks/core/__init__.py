"""Pure data and rules: what the factory talks about. No I/O, no asyncio, only pydantic."""
