"""Spark support: ``format("mdt")`` for a session, and SQL functions that a table's indexes
understand.
"""

from mdt.engines.spark import functions
from mdt.engines.spark.functions import call, match
from mdt.source import enable, wait_for_indexes, warm

__all__ = ["call", "enable", "functions", "match", "wait_for_indexes", "warm"]
