"""The facts about a base file of another writer that our metadata needs, from its footer.

Such a footer has no digests of column chunks. The CRC-32 of the footer, recorded here, detects a
file that changes later. Parquet's own page checksums are verified where the writer stored them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indexes import column_stats
from indexes.column_stats import BOUND_BYTES_MAX
from indexes.paths import leaf_paths
from indexes.values import encode, supports
from mdt.errors import Corrupt
from mdt.metadata.log.commit_log import STATS
from mdt.parquet.footer import footer_length, read_footer
from mdt.schema.calendars import require_gregorian_file
from mdt.schema.declared import stored_schema
from mdt.schema.nested import fields_of
from mdt.schema.versions import widens
from mdt.stores.storage import Storage

_NAN_IN_BOUNDS = re.compile(r"parquet-mr version 1\.1[0-7]\b")
"""Writers whose upper bound of floats is NaN if one of them is, and readers drop it. Others leave
NaN out, though it is the largest float: parquet-mr before 1.10 and from 1.18 on, and parquet-cpp.
"""
_WRONG_DECIMALS = re.compile(r"\Z|parquet-mr(?! version 1\.\d\d)")
"""parquet-mr before 1.10, which may not give its name. It compared each byte of a decimal as a
signed number.
"""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A base file, as its footer describes it.

    Attributes:
        size: Size in bytes.
        footer_length, footer_crc: Size and CRC-32 of the footer, with its length and the magic.
        metadata: The parsed footer.
    """

    size: int
    footer_length: int
    footer_crc: int
    metadata: pq.FileMetaData

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.metadata.num_rows)

    @property
    def row_groups(self) -> list[int]:
        """Rows of each row group."""
        groups = range(self.metadata.num_row_groups)
        return [self.metadata.row_group(group).num_rows for group in groups]


def read_file(storage: Storage, path: str, size: int) -> ImportedFile:
    """Return the facts in the footer of a base file of ``size`` bytes.

    Raises Corrupt if it has no readable footer, Unsupported for dates of the old calendar, and
    Missing.
    """
    return _parsed(read_footer(storage, path, size), size, path)


def parse_file(content: pa.Buffer, path: str) -> ImportedFile:
    """Return the facts about a base file with the bytes ``content``."""
    length = footer_length(content)
    footer = content.slice(content.size - length).to_pybytes()
    return _parsed(footer, content.size, path)


def _parsed(footer: bytes, size: int, path: str) -> ImportedFile:
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        text = f"the footer of a base file cannot be read: {error}"
        raise Corrupt(text[:300], path=path, offset=size - len(footer)) from error
    require_gregorian_file(metadata, path)
    return ImportedFile(size, len(footer), zlib.crc32(footer), metadata)


def fits(file: ImportedFile, schema: pa.Schema, *, exactly: bool = False) -> bool:
    """Return True if the file can be read in place as the stored columns ``schema``.

    Columns may be missing if they may be null, and integers and decimals may be narrower.

    Args:
        exactly: The columns must have the stored types, because readers of other formats do not
            convert them.
    """
    try:
        in_file = file.metadata.schema.to_arrow_schema()
        if len(set(in_file.names)) < len(in_file.names):
            return False
        return all(_fits(in_file, field, exactly=exactly) for field in schema)
    except (pa.ArrowException, ValueError):
        return False  # a type that Arrow lacks


def _fits(in_file: pa.Schema, field: pa.Field, *, exactly: bool) -> bool:
    if field.name not in in_file.names:
        return bool(field.nullable)
    type = in_file.field(field.name).type
    if type == field.type:
        return True
    if type.num_fields or field.type.num_fields:
        return _is_alike(type, field.type)
    if exactly:
        return False
    [stored] = stored_schema(pa.schema([pa.field("c", type)])).types
    if stored == field.type:
        return True
    # Spark reads floats as doubles of another value, and no dates as timestamps
    is_exact = pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)
    return is_exact and widens(stored, field.type)


def _is_alike(in_file: pa.DataType, type: pa.DataType) -> bool:
    """Return True for equal types, apart from the names of list items and nullability."""
    ours, theirs = fields_of(type), fields_of(in_file)
    if type.id != in_file.id or len(ours) != len(theirs):
        return False
    if not ours:
        return bool(type == in_file)
    pairs = list(zip(theirs, ours, strict=True))
    if pa.types.is_struct(type) and any(a.name != b.name for a, b in pairs):
        return False
    return all(_is_alike(a.type, b.type) for a, b in pairs)


def statistics(by_ordinal: Mapping[int, ImportedFile], schema: pa.Schema) -> pa.Table:
    """Return the statistics of the columns ``schema`` in each file -> STATS.

    Bounds are never exact, because writers may shorten them. A column of a file has no statistics
    if its footer has none, or if its writer may have left NaN out or compared decimals wrongly.
    """
    columns, segments, groups = list[str](), list[int](), list[int]()
    stats, files = list[column_stats.Stats](), list(by_ordinal.values())
    leaves = [_leaf_numbers(file) for file in files]
    for path, field in leaf_paths(schema):
        if not supports(field.type):
            continue
        parts = _parts(files, leaves, path, field.type)
        for segment, file_parts in zip(by_ordinal, parts, strict=True):
            known = [part for part in file_parts if part is not None]
            if not known or len(known) < len(file_parts):
                continue
            more = [column_stats.merge(known), *(known if len(known) > 1 else ())]
            stats += more
            groups += range(-1, len(more) - 1)
            segments += [segment] * len(more)
            columns += [path] * len(more)
    batch = column_stats.to_batch(stats)
    by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
    by_name |= {"column": pa.array(columns, pa.string()), "segment": pa.array(segments, pa.int64())}
    by_name["row_group"] = pa.array(groups, pa.int32())
    return pa.table([by_name[name] for name in STATS.names], schema=STATS)


def _leaf_numbers(file: ImportedFile) -> dict[str, int]:
    """Return the path of each leaf column -> its number."""
    schema = file.metadata.schema
    return {schema.column(number).path: number for number in range(file.metadata.num_columns)}


@dataclass(slots=True)
class _Chunks:
    """Statistics of column chunks as Parquet has them, None for a chunk without.

    Attributes:
        counts: Rows, nulls and bytes of each chunk.
        low, high: Bounds as Python objects, None if there are none.
    """

    counts: list[tuple[int, int, int] | None]
    low: list[Any]
    high: list[Any]


def _parts(
    files: Sequence[ImportedFile],
    leaves: Sequence[Mapping[str, int]],
    path: str,
    type: pa.DataType,
) -> Iterator[list[column_stats.Stats | None]]:
    """Yield the statistics of a column in each row group of each file, None if unknown."""
    chunks = _Chunks([], [], [])
    for file, numbers in zip(files, leaves, strict=True):
        _add_chunks(chunks, file, numbers, path)
    low, high = _keys(chunks.low, type, -0.0), _keys(chunks.high, type, 0.0)
    bounds = zip(chunks.counts, low, high, strict=True)
    for file in files:
        has_bounds = _has_bounds(file, type)
        groups = range(file.metadata.num_row_groups)
        yield [_stats(*next(bounds), has_bounds=has_bounds) for _ in groups]


def _add_chunks(chunks: _Chunks, file: ImportedFile, leaves: Mapping[str, int], path: str) -> None:
    """Append the chunks of a column in a file."""
    top = path.partition(".")[0]
    is_missing = path not in leaves and not any(leaf.partition(".")[0] == top for leaf in leaves)
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        rows, counts, low, high = group.num_rows, None, None, None
        if is_missing:
            counts = rows, rows, 0
        elif path in leaves:
            chunk = group.column(leaves[path])
            found = chunk.statistics
            if found is not None and found.has_null_count and chunk.num_values == rows:
                counts = rows, found.null_count, chunk.total_uncompressed_size
                if found.has_min_max:
                    low, high = _bounds(found)
        chunks.counts.append(counts)
        chunks.low.append(low)
        chunks.high.append(high)


def _bounds(stats: Any) -> tuple[Any, Any]:
    """Return (min, max), or (None, None) for values that Python does not have."""
    try:
        return stats.min, stats.max
    except (ValueError, OverflowError, pa.ArrowException):
        return None, None


def _has_bounds(file: ImportedFile, type: pa.DataType) -> bool:
    """Return True if the writer of the file is known to write correct bounds of ``type``."""
    created_by = file.metadata.created_by or ""
    if pa.types.is_floating(type):
        return _NAN_IN_BOUNDS.match(created_by) is not None
    return not pa.types.is_decimal(type) or _WRONG_DECIMALS.match(created_by) is None


def _keys(values: Sequence[Any], type: pa.DataType, zero: float) -> list[bytes | None]:
    """Return the keys of bounds, None for those without a short key.

    Args:
        zero: The zero that stands for both: Parquet's bounds do not distinguish 0.0 from -0.0.
    """
    try:
        array = pa.array(values, type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        array = pa.array([_fitting(value, type) for value in values], type)
    if pa.types.is_floating(type):
        array = pc.if_else(pc.is_nan(array), None, array)
        array = pc.if_else(pc.equal(array, 0.0), pa.scalar(zero, type), array)
    keys = encode(array).to_pylist()
    return [key if key is None or len(key) <= BOUND_BYTES_MAX else None for key in keys]


def _fitting(value: Any, type: pa.DataType) -> Any:
    try:
        return pa.scalar(value, type).as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


def _stats(
    counts: tuple[int, int, int] | None, low: bytes | None, high: bytes | None, *, has_bounds: bool
) -> column_stats.Stats | None:
    """Return the statistics of a chunk, or None if they prove nothing."""
    if counts is None:
        return None
    rows, nulls, size = counts
    if nulls == rows:
        return column_stats.Stats(None, None, False, False, rows, 0, rows, size)
    if not has_bounds or nulls > rows or low is None or high is None or low > high:
        return None
    return column_stats.Stats(low, high, False, False, nulls, 0, rows, size)
