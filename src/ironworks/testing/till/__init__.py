"""Till: a bundled repository with three issues, and the script of a model that works on them."""
