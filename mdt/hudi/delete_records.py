"""The records of delete blocks: keys, partition paths and ordering values, from any writer.

A block is ``4 version 3 | 4 length | Avro HoodieDeleteRecordList``, with big-endian integers. The
ordering value is a union of records that wrap a value, one for each of Java's types. Deletes that
ignore ordering values have IntWrapper 0 or null (Apache Hudi, ``HoodieDeleteRecordList.avsc``).
"""

from __future__ import annotations

import json
import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.errors import Corrupt
from mdt.hudi.avro import NAMESPACE, WRAPPED, array, field, record
from mdt.hudi.avro_columns import decode
from mdt.hudi.log_file import CONTENT_VERSION

Int64s = npt.NDArray[np.int64]

_HEAD_BYTES = 8
_VARINT_SHIFT_MAX = 63
_ORDERING_VALUES_MAX = 64
"""Ordering values of a record. Tables have one or two ordering fields."""
_ARRAY_ITEMS = [
    "null",
    *WRAPPED,
    record("LocalDateWrapper", field("value", {"type": "int", "logicalType": "date"})),
]
_DELETE_RECORD = record(
    "HoodieDeleteRecord",
    field("recordKey", ["null", "string"]),
    field("partitionPath", ["null", "string"]),
    field(
        "orderingVal",
        [
            "null",
            *(record(name, field("value", type)) for name, type in WRAPPED.items()),
            record("ArrayWrapper", field("wrappedValues", ["null", array(_ARRAY_ITEMS)])),
        ],
    ),
    namespace=NAMESPACE,
)
DELETE_RECORD = json.dumps(_DELETE_RECORD)
"""Avro schema of a delete record."""

_ARRAY = 12
"""Branch of the union with several values."""
_FIXED_BYTES = {0: 0, 1: 1, 4: 4, 5: 8}
_VARINTS = frozenset((2, 3, 8, 10, 11, 12))
"""Branches with one number, also 12 in an array."""


def decode_delete_block(content: bytes | memoryview) -> pa.Table:
    r"""Return the records of a delete block, n rows.

    ``key`` and ``partition`` are string[n], null if Hudi omitted a value. ``ordering`` is a dense
    union [n] with the branches of Hudi's union.

    Raises Corrupt if ``content`` is not exactly one list of delete records.

    >>> content = struct.pack(">iib", 3, 8, 2) + b"\x02\x02a\x00\x06\x0a\x00"
    >>> decode_delete_block(content).to_pylist()
    [{'key': 'a', 'partition': None, 'ordering': {'value': 5}}]
    """
    data = bytes(content)
    if len(data) < _HEAD_BYTES or struct.unpack_from(">ii", data) != (
        CONTENT_VERSION,
        len(data) - _HEAD_BYTES,
    ):
        raise Corrupt("damaged delete block: version or length is wrong", offset=0)
    try:
        starts, ends = _records(data)
    except IndexError:
        raise Corrupt("damaged delete block: it ends within a record", offset=len(data)) from None
    return decode(data, starts, ends, DELETE_RECORD).rename_columns(
        ["key", "partition", "ordering"]
    )


def _records(data: bytes) -> tuple[Int64s, Int64s]:
    """Return the first byte and the end of each record, int64[n] each.

    Only the bytes of a record lead to the next, so this is a loop. The values are decoded later.
    """
    starts, ends = [], []
    count, at = _block_head(data, _HEAD_BYTES)
    while count:
        for _ in range(count):
            starts.append(at)
            at = _after_ordering(data, _after_text(data, _after_text(data, at)))
            ends.append(at)
        count, at = _block_head(data, at)
    if at != len(data):
        raise Corrupt("damaged delete block: bytes left over", offset=at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _block_head(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array, 0 at its end, and their offset."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
    return abs(count), at


def _after_text(data: bytes, at: int) -> int:
    """Return the offset after an optional text."""
    if not data[at]:
        return at + 1
    length, at = _long(data, at + 1)
    return _skip(at, length)


def _after_ordering(data: bytes, at: int) -> int:
    """Return the offset after an ordering value."""
    branch = data[at] >> 1
    if branch != _ARRAY:
        return _after_value(data, at + 1, branch)
    if not data[at + 1]:
        return at + 2
    count, at = _block_head(data, at + 2)
    total = count
    while count:
        if total > _ORDERING_VALUES_MAX:
            raise Corrupt(f"damaged delete block: {total} ordering values", offset=at)
        for _ in range(count):
            at = _after_value(data, at + 1, data[at] >> 1)
        count, at = _block_head(data, at)
        total += count
    return at


def _after_value(data: bytes, at: int, branch: int) -> int:
    """Return the offset after the wrapped value at ``at``."""
    if branch in _VARINTS:
        return _long(data, at)[1]
    if branch in _FIXED_BYTES:
        return at + _FIXED_BYTES[branch]
    length, at = _long(data, at)
    return _skip(at, length)


def _skip(at: int, length: int) -> int:
    if length < 0:
        raise Corrupt("damaged delete block: a length is negative", offset=at)
    return at + length


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the offset after it."""
    value, shift = data[at] & 0x7F, 7
    while data[at] > 0x7F:
        at += 1
        if shift > _VARINT_SHIFT_MAX:
            raise Corrupt("damaged delete block: a number has more than 64 bits", offset=at)
        value |= (data[at] & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), at + 1
