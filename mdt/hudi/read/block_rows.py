"""The rows and deletes in blocks of log files of any Hudi writer.

The content of an Avro block is ``4 version 3 | 4 number of records``, then for each record
``4 length | Avro``, with big-endian integers. That of a Parquet block is a Parquet file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import avro_columns
from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.log_file import (
    AVRO,
    CONTENT_VERSION,
    IS_PARTIAL,
    PARQUET,
    SCHEMA,
)
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.log_blocks import LogBlock
from mdt.hudi.read.parquet_rows import open_content
from mdt.hudi.read.table_schema import convert_values
from mdt.schema.convert import convert

Int64s = npt.NDArray[np.int64]

_LENGTH_BYTES = 4
_HEAD_BYTES = 8
_INT, _LIST = 2, 12
"""Branches of ordering values with an int, and with several values."""


def is_partial(block: LogBlock) -> bool:
    """Return True if the rows of a data block have only the columns that change."""
    return block.block.header.get(IS_PARTIAL, "").lower() == "true"


def data_rows(block: LogBlock, names: Sequence[str]) -> pa.Table:
    """Return the rows of a data block, with those of the columns ``names`` that it has.

    Raises Corrupt, and Unsupported for HFile blocks.
    """
    kind, content = block.block.kind, block.block.content
    if kind == PARQUET:
        return open_content(content, block.path).read(names)
    if kind != AVRO:
        raise Unsupported(f"{block.path} has a block of type {kind}; mdt reads Avro and Parquet")
    try:
        starts, ends = _records(content)
        rows = avro_columns.decode(content, starts, ends, block.block.header.get(SCHEMA, ""))
    except Corrupt as error:
        raise Corrupt(error.message, path=block.path, offset=block.block.offset) from error
    present = frozenset(rows.column_names)
    return rows.select([name for name in names if name in present])


def _records(content: memoryview) -> tuple[Int64s, Int64s]:
    """Return the first byte and the end of each record, int64[n] each.

    Each length tells only where the next one is, so this is a loop. The values are decoded later.
    """
    data = bytes(content)
    version = int.from_bytes(data[:_LENGTH_BYTES], "big")
    count = int.from_bytes(data[_LENGTH_BYTES:_HEAD_BYTES], "big")
    if version != CONTENT_VERSION:
        raise Corrupt(f"damaged Avro block: unknown version {version}")
    if count > len(data) // _LENGTH_BYTES:
        raise Corrupt(f"damaged Avro block: {count} records do not fit")
    starts = np.empty(count, np.int64)
    at = _HEAD_BYTES
    for number in range(count):
        starts[number] = at + _LENGTH_BYTES
        at += _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
    if at != len(data):
        raise Corrupt("damaged Avro block: the records do not fill it")
    return starts, np.append(starts[1:] - _LENGTH_BYTES, at)[:count]


def deleted_rows(block: LogBlock, types: Sequence[pa.DataType]) -> tuple[pa.Array, list[pa.Array]]:
    """Return the keys that a delete block deletes, string[n], and their ordering values.

    Args:
        types: The type of each ordering field, null for a field without a column. Empty to ignore
            ordering values.

    The ordering values are a column [n] for each field, null for deletes that ignore them.

    Raises Corrupt, also for ordering values of other types.
    """
    try:
        rows = decode_delete_block(block.block.content)
        keys, ordering = plain(rows["key"]), plain(rows["ordering"])
        return keys, ordering_columns(ordering, types) if types else []
    except Corrupt as error:
        raise Corrupt(error.message, path=block.path, offset=block.block.offset) from error


def ordering_columns(values: pa.UnionArray, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the ordering values of deletes (n) as a column [n] for each ordering field.

    Null for deletes that ignore ordering values. Raises Corrupt for values of other types.

    Args:
        values: As in :func:`mdt.hudi.delete_records.decode_delete_block`.
    """
    is_list = values.type_codes.to_numpy() == _LIST
    rows = np.flatnonzero(is_list)
    lists = values.field(_LIST).field(0).take(values.offsets.take(pa.array(rows)))
    rows, lists = rows[np.asarray(lists.is_valid())], lists.drop_null()
    items = lists.flatten()
    if not pc.all(pc.equal(pc.list_value_length(lists), len(types)), min_count=0).as_py():
        raise Corrupt("damaged delete block: the number of ordering values is wrong")
    first = _unwrapped(values, types[0], in_list=False)
    if len(types) > 1 and first.null_count < len(first):
        raise Corrupt("damaged delete block: ordering values are missing")
    columns = []
    for number, type in enumerate(types):
        single = pa.nulls(len(values), type) if number else first
        field_values = items.take(pa.array(np.arange(number, len(items), len(types))))
        listed = _unwrapped(field_values, type, in_list=True)
        places = np.arange(len(values))
        places[rows] = len(values) + np.arange(len(rows))
        columns.append(pa.concat_arrays([single, listed]).take(pa.array(places)))
    return columns


def _unwrapped(values: pa.UnionArray, type: pa.DataType, *, in_list: bool) -> pa.Array:
    """Return the wrapped values (n) as ``type``, null for those that are null or in a list.

    The int 0 is null, too. In lists, it is the value of a field that is null, or of one of ints.
    """
    if pa.types.is_null(type):
        return pa.nulls(len(values))
    codes, offsets = values.type_codes.to_numpy(), values.offsets.to_numpy()
    places = np.zeros(len(values), np.int64)
    parts, size = [pa.nulls(1, type)], 1
    for branch in range(1, values.type.num_fields):
        if branch == _LIST and not in_list:
            continue
        rows = np.flatnonzero(codes == branch)
        wrapped = values.field(branch).field(0).take(pa.array(offsets[rows]))
        if branch == _INT and not (in_list and pa.types.is_int32(type)):
            is_set = pc.not_equal(wrapped, 0)
            rows, wrapped = rows[np.asarray(is_set)], wrapped.filter(is_set)
        if not len(rows):
            continue
        parts.append(_converted(wrapped, type))
        places[rows] = np.arange(size, size + len(rows))
        size += len(rows)
    return pa.concat_arrays(parts).take(pa.array(places))


def _converted(values: pa.Array, type: pa.DataType) -> pa.Array:
    kinds = pa.types
    is_exact = kinds.is_decimal(values.type) and kinds.is_decimal(type)
    is_exact |= kinds.is_integer(values.type) and kinds.is_integer(type)
    is_exact |= kinds.is_timestamp(values.type) and kinds.is_timestamp(type)
    try:
        if is_exact:
            return convert(values, type)
        return convert_values(values, type)
    except (Unsupported, pa.ArrowException, ValueError) as error:
        raise Corrupt(f"damaged delete block: an ordering value is not {type}: {error}") from error
