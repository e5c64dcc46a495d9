"""Input that is nothing but columns of Parquet files on a disk: read here as Arrow, whoever would have made rows of it.

It is read only where every value is sure to be the one that Spark would make of it: flat columns that each file has, under the same name and with
the type that the input has; no dates and times that an old Spark may have written in another calendar.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.errors import Conflict, CorruptInput

FILES_MAX = 1_000
"""Footers that are looked at, one after the other, before anything is read."""
_BATCH_ROWS = 65_536
_CUT_ROWS_MIN = 65_536
"""Fewer rows of a row group are not read by a task of their own."""
_LOOKED_AT_ROWS = 1_024
_INSTANT = pa.timestamp("us", "UTC")
"""What Spark makes of 96 bits, of whose time zone the file says nothing."""
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_ONE_CALENDAR, _ONE_CALENDAR_96 = b"3.0.0", b"3.1.0"
"""The versions of Spark since which dates and times, and those of 96 bits, are in one calendar; compared as texts, as Spark compares them."""
_INSTANTS_96 = (-210_866_803_200_000_000, 1 << 59)
"""Microseconds, from 4713 BC to the year 20,000: of other times of 96 bits pyarrow makes wrong ones, few of which lie in between."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file, which has ``size`` bytes and was last written at ``written_ns``.

    ``rows``: of each row group.  ``first``, ``stop``: the rows that are meant, of those of all these row groups; None: to the end.
    """

    path: str
    size: int
    written_ns: int
    row_groups: tuple[int, ...]
    rows: tuple[int, ...]
    first: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A row group with so many ``rows``, of ``size`` bytes before compression, and the bounds of one of its columns, as its file tells them; None: it does not."""

    piece: Piece
    rows: int
    size: int
    bounds: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Columns of files.  ``columns``: their names in the files; ``schema``: as they are called, and of which types they are; ``pieces``: of all files."""

    columns: tuple[str, ...]
    schema: pa.Schema
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, files: Sequence[tuple[str, int]], columns: Sequence[str], schema: pa.Schema) -> PlainFiles | None:
        """Return files, (path, bytes), None if there is one whose values somebody else must make.  O(files): their footers are read.

        The largest come first, as with Spark: where keys repeat, the last row wins.
        """
        if len(files) > FILES_MAX or any(pa.types.is_nested(field.type) for field in schema):
            return None
        pieces: list[Piece] = []
        for path, size in sorted(files, key=lambda file: -file[1]):
            try:
                found = _pieces(path, size, columns, schema)
            except (OSError, ValueError, pa.ArrowException):  # ValueError: names that are no UTF-8
                return None  # which Spark will say in its own words
            if found is None:
                return None
            pieces += found
        return cls(tuple(columns), schema, tuple(pieces))

    @property
    def size(self) -> int:
        """Bytes of the files of all pieces."""
        return sum(piece.size for piece in self.pieces)

    def table(self) -> pa.Table:
        """Return all rows.  Raises Conflict if a file is another one by now, OSError or pa.ArrowException if one cannot be read."""
        return pa.Table.from_batches(self.batches(self.pieces, use_threads=True), self.schema)

    def batches(self, pieces: Sequence[Piece], *, use_threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some pieces.  Raises as :meth:`table` does."""
        wanted = list(dict.fromkeys(self.columns))
        for piece in pieces:
            with pq.ParquetFile(
                piece.path, pre_buffer=True, coerce_int96_timestamp_unit="us", page_checksum_verification=True
            ) as file:
                _require_same(piece)
                found = file.iter_batches(_BATCH_ROWS, list(piece.row_groups), wanted, use_threads=use_threads)
                instants = _instants(file)
                for batch in _meant(piece, found):
                    for name in instants.intersection(wanted):
                        _check_instants(batch[name], name, piece.path)
                    arrays = [
                        _cast(batch[name], field.type) for name, field in zip(self.columns, self.schema, strict=True)
                    ]
                    yield pa.record_batch(arrays, schema=self.schema)

    def read(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some pieces.  Raises Conflict as :meth:`table` does, and CorruptInput if a file cannot be read."""
        for piece in pieces:
            with _readable(piece):
                yield from self.batches([piece])

    def spans(self, name: str) -> list[Span]:
        """Return all row groups, in their order, with the bounds of the column ``name``.  Raises as :meth:`read` does.  O(row groups).

        Bounds are told of texts, whole numbers and days; others would have to be compared as this house compares them.
        """
        at = self.schema.get_field_index(name)
        kind = self.schema.field(at).type
        is_known = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind)
        found: list[Span] = []
        for piece in self.pieces:
            with _readable(piece), pq.ParquetFile(piece.path) as file:
                _require_same(piece)
                leaves = [column.path for column in file.schema]
                leaf = leaves.index(self.columns[at])
                groups = [file.metadata.row_group(group) for group in piece.row_groups]
            for number, group in zip(piece.row_groups, groups, strict=True):
                bounds = _bounds(group.column(leaf).statistics) if is_known else None
                alone = replace(piece, row_groups=(number,), rows=(group.num_rows,))
                found.append(Span(alone, group.num_rows, group.total_byte_size, bounds))
        return found

    def row_bytes(self) -> float:
        """Return about how many bytes of Arrow a row takes, by the first rows of some row groups.  Raises as :meth:`read` does."""
        some = [self.pieces[at] for at in {0, len(self.pieces) // 2, len(self.pieces) - 1} if self.pieces]
        size = rows = 0
        for piece in some:
            with _readable(piece), pq.ParquetFile(piece.path) as file:
                _require_same(piece)
                wanted = list(dict.fromkeys(self.columns))
                first = next(file.iter_batches(_LOOKED_AT_ROWS, list(piece.row_groups[:1]), wanted, use_threads=False))
            size += first.nbytes
            rows += len(first)
        return size / max(1, rows)

    def dealt(self, parts: int) -> list[tuple[Piece, ...]]:
        """Return the pieces, a row group each, in at most ``parts`` parts that have about as many, neighbours together.

        Fewer row groups than parts are cut: whoever reads the end of one decodes all of it, who reads the beginning no more than that.
        """
        single = [
            replace(one, row_groups=(group,), rows=(rows,))
            for one in self.pieces
            for group, rows in zip(one.row_groups, one.rows, strict=True)
        ]
        if 0 < len(single) < parts:
            single = [piece for one in single for piece in _cut(one, -(-parts // len(single)))]
        count = min(parts, len(single))
        bounds = [len(single) * part // max(1, count) for part in range(count + 1)]
        return [tuple(single[start:end]) for start, end in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """The files of the rows of a write, from which tasks may write new ones straight; these are full at ``file_bytes_max``."""

    files: PlainFiles
    file_bytes_max: int


def encoded(pieces: Sequence[Piece]) -> str:
    """Return pieces as JSON."""
    return json.dumps(
        [(one.path, one.size, one.written_ns, one.row_groups, one.rows, one.first, one.stop) for one in pieces]
    )


def decoded(told: str) -> list[Piece]:
    """Return the pieces that :func:`encoded` has told."""
    return [
        Piece(path, size, written_ns, tuple(groups), tuple(rows), first, stop)
        for path, size, written_ns, groups, rows, first, stop in json.loads(told)
    ]


def _cut(piece: Piece, parts: int) -> list[Piece]:
    """Return the rows of a piece in at most ``parts`` pieces of about as many, none of them too small to be worth a task."""
    rows = sum(piece.rows)
    count = max(1, min(parts, rows // _CUT_ROWS_MIN))
    bounds = [rows * part // count for part in range(count + 1)]
    return [replace(piece, first=first, stop=stop) for first, stop in pairwise(bounds)]


def _meant(piece: Piece, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield those rows of all ``batches`` of a piece that are meant; nothing behind them is read."""
    start = 0
    for batch in batches:
        stop = start + len(batch)
        first = max(piece.first, start)
        last = stop if piece.stop is None else min(piece.stop, stop)
        if first < last:
            yield batch.slice(first - start, last - first)
        if piece.stop is not None and piece.stop <= stop:
            return
        start = stop


def _pieces(path: str, size: int, columns: Sequence[str], schema: pa.Schema) -> list[Piece] | None:
    """Return the row groups of a file; none of one without rows.  None where its values are not sure to be those of Spark."""
    known_size, written_ns = _state(path)
    if known_size != size:
        return None
    with pq.ParquetFile(path) as file:
        stored, told = file.schema_arrow, file.metadata.metadata or {}
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        instants = _instants(file)
    known = [name.lower() for name in stored.names]
    for name, field in zip(columns, schema, strict=True):
        if name not in stored.names or known.count(name.lower()) != 1:
            return None
        if name in instants and field.type == _INSTANT:
            continue
        if name in instants or not _same(stored.field(name).type, field.type):
            return None
    has_times = any(pa.types.is_temporal(field.type) for field in schema)
    first = _ONE_CALENDAR_96 if instants.intersection(columns) else _ONE_CALENDAR
    if has_times and (any(key in told for key in _LEGACY) or told.get(_VERSION, first) < first):
        return None
    groups = tuple(group for group, rows in enumerate(counts) if rows)
    return [Piece(path, size, written_ns, groups, tuple(counts[group] for group in groups))] if groups else []


def _state(path: str) -> tuple[int, int]:
    """Return the bytes of a file, and when it was last written."""
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def _readable(piece: Piece) -> Iterator[None]:
    """Raise CorruptInput if the file of a piece cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise CorruptInput(f"a Parquet file cannot be read: {error}", path=piece.path) from error


def _require_same(piece: Piece) -> None:
    """Raise Conflict if the file of a piece is another one by now."""
    if _state(piece.path) != (piece.size, piece.written_ns):
        raise Conflict(f"{piece.path} was written again while it was read", hint="run the write again")


def _bounds(told: pq.Statistics | None) -> tuple[Any, Any] | None:
    """Return the least and the largest value of a column of a row group; None where its file does not tell them, or tells what is no value."""
    if told is None or not told.has_min_max:
        return None
    with suppress(ValueError, OverflowError):  # bytes that are no text, or days of no calendar
        return told.min, told.max
    return None


def _instants(file: pq.ParquetFile) -> set[str]:
    """Return the paths of columns whose times have 96 bits; of a flat one it is the name."""
    return {column.path for column in file.schema if column.physical_type == "INT96"}


def _check_instants(times: pa.Array, name: str, path: str) -> None:
    """Raise ArrowInvalid if times of 96 bits are not sure to be those that the file has."""
    first, last = pc.min_max(times.cast(pa.int64())).values()
    if first.is_valid and not _INSTANTS_96[0] < first.as_py() <= last.as_py() < _INSTANTS_96[1]:
        raise pa.ArrowInvalid(
            f"{path}: times of column {name!r} are before 4713 BC or after the year 20000: only Spark reads these; "
            "write again with mdt.spark.plain.files=false"
        )


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
