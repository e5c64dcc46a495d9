"""Spark: functions for queries that a table's indexes understand, and what Spark asks for by name."""

from mdt.engines.spark import functions
from mdt.engines.spark.functions import call, match

__all__ = ["call", "functions", "match"]
