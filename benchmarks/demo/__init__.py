"""A guided tour with real data: ``python -m benchmarks.demo``."""
