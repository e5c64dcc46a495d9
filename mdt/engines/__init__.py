"""Engines: the same pure functions over rows, run in this process or on Spark."""
