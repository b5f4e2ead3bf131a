"""What the benchmarks share: how a bar is told, and a small shop with trivial issues."""
