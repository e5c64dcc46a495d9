"""Benchmarks against other table formats, and the demo.  ``python -m benchmarks --help``."""
