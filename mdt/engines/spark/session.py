"""The Spark session that a caller gives, checked at the door."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mdt.engines.spark.private import is_of_connect, is_stopped
from mdt.errors import Invalid, Unsupported

_START = "give SparkSession.builder.getOrCreate()"


def classic(spark: object) -> SparkSession:
    """Return ``spark`` if it is a running session of this process.

    Raises Unsupported for one of Spark Connect, Invalid for one that was stopped and for what is no session.
    """
    if is_of_connect(spark):
        raise Unsupported("native reading needs a classic Spark session, not one of Spark Connect", hint=_START)
    if not isinstance(spark, SparkSession):
        raise Invalid(f"spark takes a SparkSession, not a {type(spark).__name__}", hint=_START)
    if is_stopped(spark):
        raise Invalid("the Spark session was stopped", hint=_START)
    return spark
