"""A software factory: issues go in, verified pull requests come out."""

__version__ = "0.1.0"
