"""Detection of dates and times in the hybrid calendar of Spark 2.4 and earlier.

That calendar is Julian before 1582-10-15, and its old timestamps use historical time zone offsets.
Newer Spark versions still write it on request (mode LEGACY). The Parquet footer of such files has a
marker, and Spark rebases their values when it reads them. pyarrow ignores the marker but passes it
on as schema metadata. Our own files always use the proleptic Gregorian calendar, so only input data
and the files of other writers have to be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.errors import Invalid, Unsupported
from mdt.schema.nested import holds

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST = _GREGORIAN, _GREGORIAN_96 = b"3.0.0", b"3.1.0"
"""First Spark versions that write the Gregorian calendar by default: for dates and timestamps, and
for INT96. Compared as text, as Spark does.
"""
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1)
"""From these values on both calendars agree."""


def _is_old(metadata: Mapping[bytes, bytes] | None, *, has_96_bits: bool) -> bool:
    """Return True if file or schema metadata mark dates and times of the old calendar.

    >>> (
    ...     _is_old({b"org.apache.spark.version": b"2.4.8"}, has_96_bits=False),
    ...     _is_old(None, has_96_bits=True),
    ... )
    (True, False)
    """
    if not metadata:
        return False
    first = _GREGORIAN
    if has_96_bits:
        first = _GREGORIAN_96
    return any(key in metadata for key in _LEGACY) or metadata.get(_VERSION, first) < first


def require_gregorian(
    data: pa.Table | pa.RecordBatch, metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Raise Invalid if ``data`` has dates or times that differ between the calendars.

    ``metadata`` is the metadata of the file. By default the metadata of the schema is used.
    """
    if metadata is None:
        metadata = data.schema.metadata
    if not metadata:
        return
    for field, column in zip(data.schema, data.columns, strict=True):
        if _is_old(metadata, has_96_bits=field.type == pa.timestamp("ns")) and _has_old_values(
            column
        ):
            raise Invalid(
                f"column {field.name!r} has dates or times in the Julian calendar, as written by"
                " Spark before version 3 or in LEGACY mode",
                hint=(
                    "read the file with Spark and write the DataFrame; if the values are correct,"
                    " remove the marker with data.replace_schema_metadata()"
                ),
            )


def _has_old_values(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if a value may be a different day in the old calendar.

    Values inside nested columns are not read; any date or time in them counts.
    """
    kind = column.type
    if pa.types.is_nested(kind):
        return holds(kind, pa.types.is_date) or holds(kind, pa.types.is_timestamp)
    if pa.types.is_timestamp(kind):
        plain, first = column.cast(pa.timestamp(kind.unit)), pa.scalar(_FIRST_TIME)
    elif pa.types.is_date(kind):
        plain, first = column, pa.scalar(_FIRST_DAY)
    else:
        return False
    return bool(pc.any(pc.less(plain, first.cast(plain.type))).as_py())


def _has_old_bounds(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> bool:
    """Return True if a column chunk may have a value that is another day in the old calendar."""
    is_temporal = column.logical_type.type in ("DATE", "TIMESTAMP")
    if not is_temporal and column.physical_type != "INT96":
        return False
    statistics = chunk.statistics
    if statistics is None:
        return True
    if statistics.has_null_count and statistics.null_count == chunk.num_values:
        return False
    if not statistics.has_min_max:
        return True
    try:
        least = statistics.min
    except (ValueError, OverflowError):
        return True  # before the year 1
    if isinstance(least, datetime):
        return least.replace(tzinfo=None) < _FIRST_TIME
    return not isinstance(least, date) or least < _FIRST_DAY


def require_gregorian_file(metadata: pq.FileMetaData, path: str) -> None:
    """Raise Unsupported if a data file of Spark has days or times that differ between the
    calendars, or may have them because its footer has no bounds.
    """
    stored = metadata.metadata or {}
    if not _is_old(stored, has_96_bits=True):
        return
    for number in range(metadata.num_columns):
        has_96_bits = metadata.schema.column(number).physical_type == "INT96"
        mark = _LEGACY[has_96_bits]
        if mark not in stored and stored.get(_VERSION, _GREGORIAN_96) >= _FIRST[has_96_bits]:
            continue
        groups = range(metadata.num_row_groups)
        chunks = [metadata.row_group(group).column(number) for group in groups]
        if any(_has_old_bounds(chunk, metadata.schema.column(number)) for chunk in chunks):
            raise Unsupported(
                f"column {metadata.schema.column(number).path!r} of {path} may have dates or times"
                " in the Julian calendar, as written by Spark before version 3 or in LEGACY mode",
                hint=(
                    "read the rows with Spark, and write them again with"
                    " spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED and"
                    " int96RebaseModeInWrite=CORRECTED"
                ),
            ).of_others()
