"""Arrow that Python gave to ``createDataFrame``, taken back as it is: the JVM has it as bytes, and would make rows of it, and Arrow of these.

Spark has such bytes where they are more than it takes into a plan (``spark.sql.execution.arrow.localRelationThreshold``, 48 MB); of
less it makes rows at once, and the bytes are gone.  It is taken only where every value is sure to be the one that Spark would make of it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.private import java_frame
from mdt.engines.spark.schema import to_arrow

_OFFSET_BYTES = 4
"""Of texts and binary values, unless a session says otherwise, or said when it made the frame."""


def given_arrow(frame: DataFrame) -> pa.Table | None:
    """Return what ``frame.toArrow()`` would; None unless it is nothing but columns of Arrow that ``createDataFrame`` was given much of.

    Columns that are no flat ones are left to Spark, and so is what is not as it says: nulls where there are none, texts with offsets
    of 64 bits, decimals with too many digits.
    """
    wanted = to_arrow(frame.schema)
    if not len(wanted) or not all(_is_same_in_rows(field.type) for field in wanted):
        return None
    found = _written(frame)
    if found is None:
        return None
    told, data = found
    places = told["columns"]
    stored = to_arrow(StructType.fromJson(json.loads(told["schema"])))
    if [stored.field(place).type for place in places] != wanted.types:
        return None
    try:
        batches = [batch.select(places) for batch in _batches(data, stored)]
        table = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=wanted) for batch in batches], wanted
        )
        _validate(table)
    except pa.ArrowInvalid:  # Spark says what is wrong with them, or makes something of it
        return None
    return table


def _written(frame: DataFrame) -> tuple[dict[str, Any], pa.Buffer] | None:
    """Return what ``java/source/GivenBytes.java`` says of the batches, and their messages; None where it has none, or its files are not those of this process."""
    factory = factory_of(frame.sparkSession.sparkContext)
    try:
        with tempfile.NamedTemporaryFile(prefix="mdt-given-") as file:
            told = factory.givenArrow(java_frame(frame), file.name)
            data = pa.py_buffer(file.read())
    except (OSError, Py4JJavaError):  # a full disk, for one
        return None
    found = {} if told is None else json.loads(told)
    return (found, data) if found.get("bytes") == data.size else None


def _batches(data: pa.Buffer, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches whose messages follow each other in ``data``."""
    reader = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        yield pa.ipc.read_record_batch(message, schema)


def _is_same_in_rows(type: pa.DataType) -> bool:
    """Return whether Spark makes the same values of rows that it makes of Arrow of this type."""
    return bool(
        pa.types.is_boolean(type)
        or pa.types.is_signed_integer(type)
        or type in (pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
        or pa.types.is_decimal128(type)
        or (pa.types.is_timestamp(type) and type.unit == "us")
    )


def _validate(table: pa.Table) -> None:
    """Raise ArrowInvalid if Arrow is not what its schema says, or not in the form that it is read in."""
    table.validate()
    for field, column in zip(table.schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f"{field.name} has nulls")
        if pa.types.is_decimal(field.type):
            column.validate(full=True)
        if field.type in (pa.string(), pa.binary()):
            for chunk in column.chunks:
                offsets = chunk.buffers()[1]
                if len(chunk) and (offsets is None or offsets.size != (len(chunk) + 1) * _OFFSET_BYTES):
                    raise pa.ArrowInvalid(f"{field.name} has offsets of another size")
