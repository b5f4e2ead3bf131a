"""Where issues and pull requests live."""
