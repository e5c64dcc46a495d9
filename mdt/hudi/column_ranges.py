"""Bounds of a column in many files at once, from Hudi's partition ``column_stats``.

Only base files are of use, whose record never changes. A file with several records is left out, and
so are bounds that Hudi may have joined in the order of UTF-16. Row groups with long texts have no
statistics in their file, and Hudi counts all of their rows as nulls. Texts with nulls are therefore
left out, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.base import BoolArray
from indexes.column_stats import BOUND_BYTES_MAX, STATS_SCHEMA
from indexes.values import encode
from mdt.hudi.column_stats_records import HASH_CHARACTERS, FileKeys, column_prefix
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import Decode, IndexGroup, IndexPartition

_NOT_IN_ORDER = "[\\x{E000}-\\x{10FFFF}]"
"""Characters that UTF-16 sorts differently from UTF-8."""

RANGES = pa.schema([("file", pa.large_binary()), *STATS_SCHEMA])
"""The statistics of files. ``file``: see :func:`file_keys`."""
_FIELDS = ("fileName", "minValue", "maxValue", "nullCount", "valueCount", "isDeleted")


def file_keys(partitions: list[str], counts: list[int], names: pa.Array) -> pa.Array:
    """Return the hash of the partition with the name of each file, large_binary[n].

    Args:
        counts: Number of files of each of ``partitions``.
        names: Names of all these files, large_string[n].
    """
    hashes = FileKeys.from_partitions(partitions).suffixes
    hashes = hashes.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return _joined(hashes, names.cast(pa.large_binary()))


def _joined(hashes: pa.Array, names: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(hashes, names, pa.scalar(b"", pa.large_binary()))


def has_ranges(type: pa.DataType) -> bool:
    """Return True for the types whose bounds :func:`column_ranges` reads.

    Hudi's bounds of floats may leave NaN out, and the unit of times is not always stored.

    >>> has_ranges(pa.int64()), has_ranges(pa.float64())
    (True, False)
    """
    kinds = pa.types
    return bool(kinds.is_signed_integer(type) or kinds.is_date32(type) or kinds.is_string(type))


def column_ranges(
    partition: IndexPartition, types: Mapping[str, pa.DataType]
) -> dict[str, pa.Table]:
    """Return the ranges of columns in all files that have a usable record: name -> RANGES.

    Args:
        types: Name of a column -> its type, for which :func:`has_ranges` is true.

    Raises Corrupt, Missing, and Unsupported.
    """

    def read(group: IndexGroup) -> dict[str, pa.Table]:
        return {name: _ranges(group, name, type) for name, type in types.items()}

    groups = list(partition.each(read))
    tables = {name: [group[name] for group in groups] for name in types}
    return {name: pa.concat_tables([RANGES.empty_table(), *tables[name]]) for name in types}


def _ranges(group: IndexGroup, column: str, type: pa.DataType) -> pa.Table:
    """Return the usable records of a column in a file group -> RANGES."""

    def decode(keys: pa.Array, stats: pa.StructArray) -> pa.Table:
        fields = {name: pc.struct_field(stats, name) for name in _FIELDS}
        return pa.table(
            {
                "key": keys,
                "name": fields["fileName"].cast(pa.large_binary()),
                "is_deleted": fields["isDeleted"],
                "low": _values(fields["minValue"], type),
                "high": _values(fields["maxValue"], type),
                "nulls": fields["nullCount"],
                "rows": fields["valueCount"],
            }
        )

    select = partial(HFile.lookup_prefix, prefix=column_prefix(column))
    return _usable(group.records(select, Decode("ColumnStatsMetadata", decode)))


def _values(bounds: pa.UnionArray, type: pa.DataType) -> pa.Array:
    """Return bounds as values of ``type``, null for those of other types."""
    codes, offsets = np.asarray(bounds.type_codes), np.asarray(bounds.offsets)
    values = pa.nulls(len(bounds), type)
    for code in np.unique(codes).tolist():
        content = bounds.field(code)
        if pa.types.is_struct(content.type) and content.type.num_fields:
            inner = pc.struct_field(content, [0])
            if _is_alike(inner.type, type):
                places = pa.array(
                    np.where(codes == code, offsets, 0), pa.int64(), mask=codes != code
                )
                values = pc.coalesce(inner.cast(type).take(places), values)
    return values


def _is_alike(stored: pa.DataType, type: pa.DataType) -> bool:
    """Return True if bounds of the type ``stored`` can be those of a column."""
    kinds = pa.types
    if kinds.is_date32(type):
        return bool(kinds.is_int32(stored))
    if kinds.is_integer(type):
        return bool(kinds.is_integer(stored))
    return bool(stored == type)


def _usable(records: pa.Table) -> pa.Table:
    """Return the records whose bounds hold, as RANGES."""
    if "low" not in records.column_names:
        return RANGES.empty_table()
    keys, nulls, rows = (plain(records[name]) for name in ("key", "nulls", "rows"))
    ends = plain(records["low"]), plain(records["high"])
    low, high = (encode(end) for end in ends)
    is_known = flags(pc.less_equal(low, high).fill_null(False))
    for end in ends:
        is_known &= _is_bound(end)
    if pa.types.is_string(ends[0].type):
        is_known &= flags(pc.equal(nulls, 0).fill_null(False))
    else:
        has_nulls_only = pc.and_(pc.and_(low.is_null(), high.is_null()), pc.equal(nulls, rows))
        is_known |= flags(has_nulls_only.fill_null(False))
    is_known &= ~flags(plain(records["is_deleted"])) & _is_single(keys)
    hashes = pc.utf8_slice_codeunits(keys, HASH_CHARACTERS, 2 * HASH_CHARACTERS)
    hashes = hashes.cast(pa.large_string()).cast(pa.large_binary())
    columns = {"file": _joined(hashes, plain(records["name"]))}
    columns |= {"min": low, "max": high, "nulls": nulls, "values": rows}
    for name in ("min_exact", "max_exact"):
        columns[name] = pa.repeat(False, len(keys))
    for name in ("nans", "bytes"):
        columns[name] = pa.repeat(0, len(keys))
    table = pa.table([columns[name] for name in RANGES.names], schema=RANGES)
    return table.filter(pa.array(is_known))


def _is_bound(values: pa.Array) -> BoolArray:
    """Return False for texts that are too long, or whose order may not be that of bytes."""
    if not pa.types.is_string(values.type):
        return np.ones(len(values), np.bool_)
    is_short = pc.less_equal(pc.binary_length(values), BOUND_BYTES_MAX)
    in_order = pc.invert(pc.match_substring_regex(values, _NOT_IN_ORDER))
    return flags(pc.and_(is_short, in_order).fill_null(False))


def _is_single(keys: pa.Array) -> BoolArray:
    """Return True for the keys that occur once."""
    order = pc.sort_indices(keys)
    ordered = keys.take(order)
    is_repeat = flags(pc.equal(ordered[:-1], ordered[1:]))
    is_single = np.ones(len(keys), np.bool_)
    is_single[order.to_numpy()[1:][is_repeat]] = False
    is_single[order.to_numpy()[:-1][is_repeat]] = False
    return is_single
