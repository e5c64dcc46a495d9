"""Validation and settings of the caller's Spark session."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from mdt.engines.spark import private
from mdt.engines.spark.java_half import factory_of
from mdt.errors import Invalid, Unsupported

_START = "pass SparkSession.builder.getOrCreate()"
_BY_NAME = (
    "call mdt.spark.enable on the server, then read with"
    ' spark.read.format("mdt").load(path); or read in process with mdt.open(path)'
)


def classic(spark: object) -> SparkSession:
    """Return ``spark`` if it is a running session of this process.

    Raises Unsupported for Spark Connect, and Invalid for a stopped session or another object.
    """
    if private.is_of_connect(spark):
        raise Unsupported(
            "Spark Connect sessions are not supported: a classic Spark session is required",
            hint=_BY_NAME,
        )
    if not isinstance(spark, SparkSession):
        raise Invalid(f"spark must be a SparkSession, not a {type(spark).__name__}", hint=_START)
    if private.is_stopped(spark):
        raise Invalid("the Spark session was stopped", hint=_START)
    return spark


def classic_frame(frame: object) -> None:
    """Raise Unsupported for a DataFrame of Spark Connect, whose rows this process cannot access."""
    if private.is_of_connect(frame):
        raise Unsupported(
            "DataFrames of Spark Connect are not supported: their rows are on a server",
            hint=(
                "pass frame.toArrow(); or call mdt.spark.enable on the server, then write with"
                ' frame.write.format("mdt").mode("append").save(path)'
            ),
        )


def is_on_this_machine(spark: SparkSession) -> bool:
    """Return True if all executors of a session run on this machine."""
    return str(classic(spark).sparkContext.master).startswith("local")


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return True if a session distinguishes column names that differ in case."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def settings(spark: SparkSession, prefix: str) -> dict[str, str]:
    """Return the settings of a session whose names begin with ``prefix``.

    ``spark.conf.getAll`` makes a call per setting and ends with an error, about 0.1 s in all. This
    makes a single call.
    """
    values: dict[str, str] = json.loads(
        factory_of(spark.sparkContext).settings(private.java_session(spark), prefix)
    )
    return values


def name(spark: SparkSession) -> str:
    """Return a name that is unique to a session among all JVMs. Python may have several objects for
    a session.
    """
    return str(factory_of(spark.sparkContext).name(private.java_session(spark)))
