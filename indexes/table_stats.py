"""Column statistics for a cost-based optimizer: counts of rows, nulls and distinct values, the most
common values, and bytes.

Each segment and column has a summary of one to two kilobytes. The summaries of a table can be
merged. A segment with few distinct values is counted exactly. With many, it is estimated by
``indexes.sketches``.

The count of a common value is a bound, in the manner of Misra and Gries ("Finding repeated
elements", 1982) with the merge of Agarwal et al. ("Mergeable summaries", 2012). The value occurs at
least ``count`` and at most ``count + error`` times. Values that are not listed occur at most
``rest`` times. Merging drops the least common values and raises ``rest`` accordingly.

Statistics describe the rows at the time of the summary. Later deletes make them too large.

Bytes, little-endian: magic "MTST", version (1), common values (uint8), 0 (2), rows, nulls, bytes,
rest (uint64 each), CRC-32 of these and of the remaining bytes. Then, compressed by zlib: registers
(2,048), counts and errors (uint64 each), lengths of keys (uint8), keys (``indexes.values``).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa

from indexes import sketches, values
from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary, whole
from indexes.predicate import Leaf
from indexes.sketches import REGISTERS, Registers

COMMON_MAX = 32
"""Stored common values. Optimizer histograms use about this many, and they fit into a kilobyte."""
COMMON_KEY_BYTES_MAX = 64
"""Longer keys are not listed and count towards ``rest``."""

_MAGIC = b"MTST"
_VERSION = 1
_HEADER = struct.Struct("<4sBBHQQQQ")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_PAYLOAD_BYTES_MAX = REGISTERS + COMMON_MAX * (8 + 8 + 1 + COMMON_KEY_BYTES_MAX)
_COUNT_MAX = (1 << 62) - 1
_EXACT_ROWS = 65_536
_PROBE_ROWS = 16_384
_PROBE_SLICES = 8
_FEW_SHARE = 8
_SIGMAS = 2.0


@dataclass(frozen=True, slots=True)
class Common:
    """A value that occurs at least ``count`` and at most ``count + error`` times."""

    value: object
    count: int
    error: int


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Statistics of a column.

    Attributes:
        distinct: Estimated number of distinct values.
        distinct_low, distinct_high: Bounds of that number, correct in about 95 % of cases. All
            three are equal if the number is exact.
        common: The most common values first.
        rest: Values that are not listed occur at most this often.
        bytes: Estimated size of the column in memory.
    """

    rows: int
    nulls: int
    distinct: int
    distinct_low: int
    distinct_high: int
    common: list[Common]
    rest: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Summary:
    """Content of a summary. ``common`` maps key -> (count, error)."""

    rows: int
    nulls: int
    size: int
    rest: int
    registers: Registers
    common: dict[bytes, tuple[int, int]]


def summarize(column: pa.Array | pa.ChunkedArray) -> bytes:
    """Return the summary of a column [rows] of a type with an order.

    O(rows): 5 to 20 ns per row, 40 for long text. Raises ValueError for a type without order
    (``indexes.values``).
    """
    rows, size = len(column), int(column.nbytes)
    present = _drop_nulls(column)
    nulls = rows - len(present)
    if _has_few_values(present):
        counts = _count_all(present)
    else:
        counts = _count_frequent(present)
    return _pack(_Summary(rows, nulls, size, *counts))


def merge(summaries: Sequence[bytes | memoryview]) -> bytes:
    """Merge the summaries of columns of one type. O(summaries).

    Raises ValueError for bytes that this module did not write.
    """
    parts = [_unpack(summary) for summary in summaries]
    common: dict[bytes, list[int]] = {}
    total_rest = sum(part.rest for part in parts)
    for part in parts:
        for key, (count, error) in part.common.items():
            # A value that a summary does not list may still occur ``rest`` times in it.
            sums = common.setdefault(key, [0, total_rest])
            sums[0] += count
            sums[1] += error - part.rest
    ordered = sorted(common.items(), key=lambda item: (-item[1][0], item[0]))
    rest = max([total_rest, *(count + error for _, (count, error) in ordered[COMMON_MAX:])])
    retained = {key: (count, error) for key, (count, error) in ordered[:COMMON_MAX]}
    registers = np.zeros(REGISTERS, np.uint8)
    for part in parts:
        np.maximum(registers, part.registers, out=registers)
    counts = (
        sum(part.rows for part in parts),
        sum(part.nulls for part in parts),
        sum(part.size for part in parts),
    )
    return _pack(_Summary(*counts, rest, registers, retained))


def estimate(summary: bytes | memoryview, type: pa.DataType) -> ColumnSummary:
    """Decode a summary of a column of ``type``.

    Raises ValueError for bytes that this module did not write, or wrote for a type with other keys.

    >>> parts = [summarize(pa.array(["a", "a", "b"])), summarize(pa.array(["a", None]))]
    >>> estimated = estimate(merge(parts), pa.string())
    >>> estimated.rows, estimated.nulls, estimated.distinct
    (5, 1, 2)
    >>> [(item.value, item.count) for item in estimated.common]
    [('a', 3), ('b', 1)]
    """
    content = _unpack(summary)
    common = [
        Common(values.decode(key, type), count, error)
        for key, (count, error) in content.common.items()
    ]
    at_least = max(len(common), int(content.nulls < content.rows))
    at_most = _max_distinct(content)
    if not content.rest:
        low = middle = high = len(common)
    else:
        guess = sketches.distinct(content.registers)
        margin = _SIGMAS * sketches.RELATIVE_ERROR * guess
        bounds = (math.floor(guess - margin), round(guess), math.ceil(guess + margin))
        low, middle, high = (min(max(bound, at_least), at_most) for bound in bounds)
    return ColumnSummary(
        content.rows, content.nulls, middle, low, high, common, content.rest, content.size
    )


def check(summary: bytes | memoryview) -> None:
    """Raise ValueError for bytes that this module did not write."""
    _unpack(summary)


class TableStats(SkippingIndex):
    """Optimizer statistics, stored like an index. They never prune."""

    name: ClassVar[str] = "table_stats/1"

    def supports(self, type: pa.DataType) -> bool:
        """Return True if columns of ``type`` can be summarized. O(1)."""
        return values.supports(type)

    def summarize(self, values: pa.Array) -> bytes:
        """Return the statistics of a segment's column [rows]. See :func:`summarize`."""
        return summarize(values)

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Return False: these statistics never prune."""
        return False

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE for each of n summaries -> bool[n]. Raises ValueError for foreign bytes."""
        for summary in summaries:
            check(whole(summary))
        return np.ones(len(summaries), np.bool_)


def _max_distinct(content: _Summary) -> int:
    """Return an upper bound: non-null rows, minus the repetitions of common values."""
    return content.rows - content.nulls - sum(count - 1 for count, _ in content.common.values())


def _drop_nulls(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values that are not null."""
    if not values.supports(column.type):
        raise ValueError(
            f"statistics do not support type {column.type}; use a scalar column or a struct field"
        )
    plain = values.plain(column)
    if plain.null_count:
        return plain.drop_null()
    return plain


def _has_few_values(present: pa.Array) -> bool:
    """Return True if exact counting is probably cheap, judging by samples from all parts of the
    column.
    """
    if len(present) <= _EXACT_ROWS:
        return True
    rows, step = _PROBE_ROWS // _PROBE_SLICES, len(present) // _PROBE_SLICES
    probe = pa.chunked_array(
        [present.slice(number * step, rows) for number in range(_PROBE_SLICES)]
    )
    return len(probe.unique()) <= _PROBE_ROWS // _FEW_SHARE


_Counts = tuple[int, Registers, dict[bytes, tuple[int, int]]]
"""(rest, registers, common)"""


def _count_all(present: pa.Array) -> _Counts:
    value_counts = present.value_counts()
    keys = values.encode(value_counts.field("values"))
    counts = value_counts.field("counts").to_numpy().astype(np.int64)
    # Merge both zeros, and all NaN.
    grouped = (
        pa.table([keys, counts], names=["key", "count"])
        .group_by("key")
        .aggregate([("count", "sum")])
    )
    keys, counts = grouped["key"].combine_chunks(), grouped["count_sum"].to_numpy()
    sketch = sketches.registers(sketches.hash_values(keys))
    if len(counts) <= COMMON_MAX:
        order = np.argsort(-counts, kind="stable")
        return _list_common(keys, counts, order, 0, sketch)
    # Do not list values that occur only once.
    head = np.argpartition(-counts, COMMON_MAX)[: COMMON_MAX + 1]
    head = head[np.argsort(-counts[head], kind="stable")]
    selected = head[:COMMON_MAX][counts[head[:COMMON_MAX]] > 1]
    return _list_common(keys, counts, selected, int(counts[head[len(selected)]]), sketch)


def _count_frequent(present: pa.Array) -> _Counts:
    keys = values.encode(present)
    hashes = sketches.hash_values(keys)
    frequent = sketches.frequent(hashes, COMMON_MAX)
    counts = frequent.count
    chosen = keys.take(pa.array(frequent.row))
    return _list_common(
        chosen, counts, np.arange(len(counts)), frequent.rest, sketches.registers(hashes)
    )


def _list_common(
    keys: pa.Array, counts: Int64Array, order: Int64Array, uncounted_max: int, sketch: Registers
) -> _Counts:
    """Return the values at ``order`` as common values. Long values raise ``uncounted_max``."""
    common = {}
    for key, count in zip(
        keys.take(pa.array(order)).to_pylist(), counts[order].tolist(), strict=True
    ):
        if len(key) > COMMON_KEY_BYTES_MAX:
            uncounted_max = max(uncounted_max, count)
        else:
            common[key] = (count, 0)
    return uncounted_max, sketch, common


def _pack(summary: _Summary) -> bytes:
    keys = list(summary.common)
    counts = [count for count, _ in summary.common.values()]
    errors = [error for _, error in summary.common.values()]
    payload = zlib.compress(
        b"".join(
            [
                summary.registers.tobytes(),
                np.array([*counts, *errors], "<u8").tobytes(),
                bytes(map(len, keys)),
                *keys,
            ]
        )
    )
    numbers = (summary.rows, summary.nulls, summary.size, summary.rest)
    head = _HEADER.pack(_MAGIC, _VERSION, len(keys), 0, *numbers)
    return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head))) + payload


def _unpack(summary: bytes | memoryview) -> _Summary:
    """Decode a summary. Raises ValueError for bytes that :func:`_pack` did not make."""
    if not _HEADER_BYTES < len(summary) <= _HEADER_BYTES + 2 * _PAYLOAD_BYTES_MAX:
        raise ValueError(f"table statistics cannot have {len(summary)} bytes")
    magic, version, n, zero, rows, nulls, size, rest = _HEADER.unpack_from(summary)
    payload = summary[_HEADER_BYTES:]
    if magic != _MAGIC or version != _VERSION or zero or n > COMMON_MAX:
        raise ValueError("the bytes are not table statistics")
    if (
        zlib.crc32(payload, zlib.crc32(summary[: _HEADER.size]))
        != _CRC.unpack_from(summary, _HEADER.size)[0]
    ):
        raise ValueError("table statistics are damaged: wrong checksum")
    data = _decompress(payload)
    lengths_at = REGISTERS + 16 * n
    lengths = list(data[lengths_at : lengths_at + n])
    if len(data) != lengths_at + n + sum(lengths) or max(lengths, default=0) > COMMON_KEY_BYTES_MAX:
        raise ValueError(f"table statistics with {n} common values cannot have {len(data)} bytes")
    numbers = np.frombuffer(data, "<u8", count=2 * n, offset=REGISTERS).tolist()
    ends = np.cumsum([lengths_at + n, *lengths]).tolist()
    keys = [data[start:end] for start, end in pairwise(ends)]
    common = dict(zip(keys, zip(numbers[:n], numbers[n:], strict=True), strict=True))
    content = _Summary(
        rows, nulls, size, rest, np.frombuffer(data, np.uint8, count=REGISTERS), common
    )
    _check(content, n, numbers)
    return content


def _decompress(payload: bytes | memoryview) -> bytes:
    """Decompress the payload, up to the largest possible size."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, _PAYLOAD_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"table statistics cannot be decompressed: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("table statistics have a wrong length")
    return data


def _check(content: _Summary, n: int, numbers: Sequence[int]) -> None:
    """Raise ValueError if the fields contradict each other."""
    if (
        max([content.rows, content.size, content.rest, *numbers]) > _COUNT_MAX
        or content.nulls > content.rows
    ):
        raise ValueError("a count in table statistics is out of range")
    if len(content.common) != n or any(count < 1 for count, _ in content.common.values()):
        raise ValueError("table statistics contain a duplicate value or a count of zero")
    if sum(count for count, _ in content.common.values()) > content.rows - content.nulls:
        raise ValueError("table statistics count common values more often than there are rows")
    if int(content.registers.max()) > sketches.RANK_MAX:
        raise ValueError("a register of table statistics is out of range")
