"""Schemas of Spark as Arrow has them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mdt.errors import Invalid


def to_arrow(schema: StructType) -> pa.Schema:
    """Return a Spark schema: timestamps in UTC, ``timestamp_ntz`` without zone.  Raises Invalid for types that Arrow lacks."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except (PySparkException, TypeError, ValueError) as error:
        raise Invalid(f"the schema has a type that no table can keep: {error}", hint="cast the column in Spark") from error
