"""Input that is nothing but columns of Parquet files on a disk: read here as Arrow, whoever would have made rows of it.

It is read only where every value is sure to be the one that Spark would make of it: flat columns that each file has, under the same name and with
the type that the input has; no dates and times that an old Spark may have written in another calendar.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mdt.errors import Conflict

FILES_MAX = 1_000
"""Footers that are looked at, one after the other, before anything is read."""
_BATCH_ROWS = 65_536
_INSTANT = pa.timestamp("us", "UTC")
"""What Spark makes of 96 bits, of whose time zone the file says nothing."""
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_WITH_ONE_CALENDAR = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file, ``size`` bytes in all."""

    path: str
    size: int
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Columns of files.  ``columns``: their names in the files; ``schema``: as they are called, and of which types they are; ``pieces``: of all files."""

    columns: tuple[str, ...]
    schema: pa.Schema
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, files: Sequence[tuple[str, int]], columns: Sequence[str], schema: pa.Schema) -> PlainFiles | None:
        """Return files, (path, bytes), None if there is one whose values somebody else must make.  O(files): their footers are read."""
        if len(files) > FILES_MAX or any(pa.types.is_nested(field.type) for field in schema):
            return None
        pieces: list[Piece] = []
        for path, size in files:
            try:
                found = _pieces(path, size, columns, schema)
            except (OSError, pa.ArrowException):
                return None  # which Spark will say in its own words
            if found is None:
                return None
            pieces += found
        return cls(tuple(columns), schema, tuple(pieces))

    def table(self) -> pa.Table:
        """Return all rows.  Raises Conflict if a file is another one by now, OSError or pa.ArrowException if one cannot be read."""
        return pa.Table.from_batches(self.batches(self.pieces, use_threads=True), self.schema)

    def batches(self, pieces: Sequence[Piece], *, use_threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some pieces.  Raises as :meth:`table` does."""
        wanted = list(dict.fromkeys(self.columns))
        for piece in pieces:
            with pq.ParquetFile(piece.path, pre_buffer=True, coerce_int96_timestamp_unit="us") as file:
                if Path(piece.path).stat().st_size != piece.size:
                    raise Conflict(f"{piece.path} was written again while it was read", hint="run the write again")
                found = file.iter_batches(_BATCH_ROWS, list(piece.row_groups), wanted, use_threads=use_threads)
                for batch in found:
                    arrays = [
                        _cast(batch[name], field.type) for name, field in zip(self.columns, self.schema, strict=True)
                    ]
                    yield pa.record_batch(arrays, schema=self.schema)

    def dealt(self, parts: int) -> list[tuple[Piece, ...]]:
        """Return the pieces, a row group each, in at most ``parts`` parts that have about as many, neighbours together."""
        single = [Piece(one.path, one.size, (group,)) for one in self.pieces for group in one.row_groups]
        count = min(parts, len(single))
        bounds = [len(single) * part // max(1, count) for part in range(count + 1)]
        return [tuple(single[start:end]) for start, end in pairwise(bounds)]


def encoded(pieces: Sequence[Piece]) -> str:
    """Return pieces as JSON."""
    return json.dumps([(one.path, one.size, one.row_groups) for one in pieces])


def decoded(told: str) -> list[Piece]:
    """Return the pieces that :func:`encoded` has told."""
    return [Piece(path, size, tuple(groups)) for path, size, groups in json.loads(told)]


def _pieces(path: str, size: int, columns: Sequence[str], schema: pa.Schema) -> list[Piece] | None:
    """Return the row groups of a file; none of one without rows.  None where its values are not sure to be those of Spark."""
    if Path(path).stat().st_size != size:
        return None
    with pq.ParquetFile(path) as file:
        stored, told = file.schema_arrow, file.metadata.metadata or {}
        groups = tuple(i for i in range(file.metadata.num_row_groups) if file.metadata.row_group(i).num_rows)
        instants = {column.name for column in file.schema if column.physical_type == "INT96"}
    known = [name.lower() for name in stored.names]
    for name, field in zip(columns, schema, strict=True):
        if name not in stored.names or known.count(name.lower()) != 1:
            return None
        if name in instants and field.type == _INSTANT:
            continue
        if name in instants or not _same(stored.field(name).type, field.type):
            return None
    has_times = any(pa.types.is_temporal(field.type) for field in schema)
    if has_times and (any(key in told for key in _LEGACY) or _is_old(told.get(_VERSION))):
        return None
    return [Piece(path, size, groups)] if groups else []


def _is_old(version: bytes | None) -> bool:
    """Return whether a Spark with two calendars may have written a file; one that says nothing of Spark was written by others."""
    if version is None:
        return False
    major = version.split(b".")[0]
    return not major.isdigit() or int(major) < _FIRST_WITH_ONE_CALENDAR


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether stored values are those of a column of type ``wanted``, in another form at most."""
    if pa.types.is_dictionary(stored):
        stored = stored.value_type
    for family in (_TEXTS, _BINARIES):
        if wanted in family:
            return stored in family
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(stored):
        return bool(stored.unit == wanted.unit and (stored.tz is None) == (wanted.tz is None))
    return bool(stored == wanted)


_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())


def _cast(column: pa.Array, type: pa.DataType) -> pa.Array:
    return column if column.type == type else column.cast(type)
