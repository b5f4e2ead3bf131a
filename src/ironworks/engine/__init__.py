"""The durable pipeline that takes an issue to a landed change."""
