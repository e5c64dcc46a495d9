"""Conversion of Spark schemas to Arrow."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from mdt.engines.spark.private import utc_arrow_schema
from mdt.errors import Invalid


def to_arrow(schema: StructType) -> pa.Schema:
    """Convert a Spark schema: timestamps in UTC, ``timestamp_ntz`` without a zone. Raises Invalid
    for types that Arrow does not have.
    """
    try:
        return utc_arrow_schema(schema)
    except (PySparkException, TypeError, ValueError) as error:
        raise Invalid(
            f"the schema has a type that tables do not support: {error}",
            hint="cast the column in Spark",
        ) from error


def parse_json(text: str) -> StructType:
    """Parse a Spark schema in Spark's JSON."""
    return StructType.fromJson(json.loads(text))


def new_columns_to_arrow(schema: StructType) -> pa.Schema:
    """Convert a Spark schema as :func:`to_arrow` does. Also raises Invalid for strings with a
    collation, because tables and Hudi's readers compare bytes.
    """
    if " collate " in schema.simpleString():
        raise Invalid(
            "the schema has strings with a collation, which tables do not support",
            hint="declare them as string, and write x COLLATE UNICODE_CI in queries",
        )
    return to_arrow(schema)


def in_micros(type: pa.DataType) -> pa.DataType:
    """Return a stored type with timestamps in microseconds at any depth, the only unit that Spark
    accepts from Arrow.
    """
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(in_micros(field.type)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_type, type.item_field.with_type(in_micros(type.item_type)))
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(in_micros(type.value_type)))
    return type
