"""The board: what the factory does, live."""
