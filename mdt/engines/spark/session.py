"""The Spark session that a caller gives, checked at the door."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mdt.errors import Invalid, Unsupported

_START = "give SparkSession.builder.getOrCreate()"


def classic(spark: object) -> SparkSession:
    """Return ``spark`` if it is a running session of this process.

    Raises Unsupported for one of Spark Connect, Invalid for one that was stopped and for what is no session.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise Unsupported("native reading needs a classic Spark session, not one of Spark Connect", hint=_START)
    if not isinstance(spark, SparkSession):
        raise Invalid(f"spark takes a SparkSession, not a {type(spark).__name__}", hint=_START)
    if spark.sparkContext._jsc is None:
        raise Invalid("the Spark session was stopped", hint=_START)
    return spark
