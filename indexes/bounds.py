"""Column statistics of many segments, prepared for repeated comparisons with literals.

:meth:`Bounds.read` extracts everything that tests need from columnar statistics: the segments with
consistent counts, the segments with values, and 8-byte bounds as machine words. Words compare ten
times faster than binary bounds. Bounds of several parts can be concatenated without reading the
statistics again. Unknown values pass every test.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as order
from indexes.arrays import flags, numbers
from indexes.base import BoolArray

WORD_BYTES = 8
"""Keys of this width are compared as unsigned numbers, because their bytes are big-endian."""

Test = Callable[[Any, Any], Any]
"""A comparison such as ``operator.lt``."""

_KERNELS: Mapping[Test, Any] = {
    operator.lt: pc.less,
    operator.le: pc.less_equal,
    operator.ge: pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Side:
    """The lower or the upper bounds of n segments.

    Attributes:
        keys: binary[n], null for a missing bound.
        words: uint64[n] with the same bounds, 0 for a missing bound. None unless all keys have
            eight bytes.
        absent: bool[n], True for a missing bound. None if no bound is missing, or without
            ``words``.
    """

    keys: pa.ChunkedArray
    words: npt.NDArray[np.uint64] | None = None
    absent: BoolArray | None = None

    @classmethod
    def read(cls, keys: pa.ChunkedArray, *, is_wide: bool) -> Side:
        """Prepare bounds. ``is_wide`` is True for types with keys of eight bytes."""
        if is_wide:
            words, position = np.empty(len(keys), np.uint64), 0
            for chunk in keys.chunks:
                if not _write_words(chunk, words[position : position + len(chunk)]):
                    return cls(keys)
                position += len(chunk)
            absent = None
            if keys.null_count:
                absent = flags(keys.is_null())
            return cls(keys, words, absent)
        return cls(keys)

    def passes(self, test: Test, key: bytes) -> BoolArray:
        """Return ``test(bound, key)`` -> bool[n], True for a missing bound."""
        if self.words is None or len(key) != WORD_BYTES:
            return known_or_true(_KERNELS[test](self.keys, pa.scalar(key, pa.binary())))
        passed = test(self.words, np.uint64(int.from_bytes(key, "big")))
        if self.absent is not None:
            passed = passed | self.absent
        return np.asarray(passed, dtype=np.bool_)

    @property
    def nbytes(self) -> int:
        """Memory in bytes, without the shared ``keys``."""
        return sum(part.nbytes for part in (self.words, self.absent) if part is not None)

    @staticmethod
    def concat(parts: Sequence[Side]) -> Side:
        """Concatenate the bounds of at least one part."""
        keys = pa.chunked_array(
            [chunk for part in parts for chunk in part.keys.chunks], pa.binary()
        )
        words = [part.words for part in parts if part.words is not None]
        if len(words) < len(parts):
            return Side(keys)
        if all(part.absent is None for part in parts):
            return Side(keys, np.concatenate(words), None)
        absent = []
        for part in parts:
            part_absent = part.absent
            if part_absent is None:
                part_absent = np.zeros(len(part.keys), np.bool_)
            absent.append(part_absent)
        return Side(keys, np.concatenate(words), np.concatenate(absent))


def _write_words(keys: pa.Array, words: npt.NDArray[np.uint64]) -> bool:
    """Write keys as numbers to ``words`` uint64[n], 0 for null. Return True if all keys have eight
    bytes.
    """
    _, ends, data = keys.buffers()
    if not len(keys):
        return True
    offsets = np.frombuffer(ends, np.int32, len(keys) + 1, 4 * keys.offset)
    valid = flags(keys.is_valid()) if keys.null_count else None
    if not bool(np.all(np.diff(offsets) == (WORD_BYTES if valid is None else WORD_BYTES * valid))):
        return False
    count = len(keys) - keys.null_count
    key_words = (
        np.frombuffer(data, ">u8", count, int(offsets[0])) if count else np.empty(0, np.uint64)
    )
    if valid is None:
        words[:] = key_words
    else:
        words[:] = 0
        words[valid] = key_words
    return True


_COUNTED = ("known", "has_rows", "has_nulls", "has_values")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of a column for n segments: bounds, and flags derived from counts -> bool[n] each.

    Attributes:
        min, max: The bounds.
        known: True if the counts are consistent. Other segments are MAYBE.
        has_rows, has_nulls, has_values: True if there are rows, nulls, or rows that are not null.
    """

    min: Side
    max: Side
    known: BoolArray
    has_rows: BoolArray
    has_nulls: BoolArray
    has_values: BoolArray

    @classmethod
    def read(cls, stats: pa.RecordBatch | pa.Table, type: pa.DataType) -> Bounds:
        """Prepare statistics in columnar form, ``STATS_SCHEMA`` [n], of a column of ``type``.

        Bounds are not copied. A segment with null or contradictory counts is unknown.
        """
        low, high = (_as_chunked(stats.column(name)) for name in ("min", "max"))
        row_flags, without_nans, position = (
            np.empty((len(_COUNTED), stats.num_rows), np.bool_),
            [],
            0,
        )
        for part in [stats] if isinstance(stats, pa.RecordBatch) else stats.to_batches():
            nulls, rows, nans = (counts(part.column(name)) for name in ("nulls", "values", "nans"))
            part_flags = row_flags[:, position : position + len(nulls)]
            part_flags[:] = (nulls >= 0) & (rows >= nulls), rows > 0, nulls > 0, rows > nulls
            without_nans.append(nans < 0)
            position += len(nulls)
        kind = order.kind_of(type)
        if kind == "float" and any(part.any() for part in without_nans):
            # Without a NaN count there is no upper bound, because NaN is above everything.
            high = _as_chunked(
                pc.if_else(
                    pa.array(np.concatenate(without_nans)), pa.scalar(None, pa.binary()), high
                )
            )
        is_wide = kind in ("int", "float", "date", "timestamp")
        return cls(Side.read(low, is_wide=is_wide), Side.read(high, is_wide=is_wide), *row_flags)

    @classmethod
    def unknown(cls, n: int) -> Bounds:
        """Return the bounds of n segments without statistics."""
        nothing = Side(
            pa.chunked_array([pa.nulls(n, pa.binary())]),
            np.zeros(n, np.uint64),
            np.ones(n, np.bool_),
        )
        no = np.zeros(n, np.bool_)
        return cls(nothing, nothing, no, no, no, no)

    @staticmethod
    def concat(parts: Sequence[Bounds]) -> Bounds:
        """Concatenate the statistics of at least one part. O(n). Bounds are not copied."""
        if len(parts) == 1:
            return parts[0]
        return Bounds(
            Side.concat([part.min for part in parts]),
            Side.concat([part.max for part in parts]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in _COUNTED),
        )

    @property
    def num_rows(self) -> int:
        """Number of segments, named like the attribute of Arrow tables."""
        return len(self.known)

    @property
    def nbytes(self) -> int:
        """Memory in bytes, without the shared bounds."""
        return self.min.nbytes + self.max.nbytes + 4 * len(self.known)

    def each(self, verdict: bool) -> BoolArray:
        """Return the same verdict for each segment -> bool[n]."""
        return np.full(len(self.known), verdict)

    def low(self, test: Test, key: bytes) -> BoolArray:
        """Return ``test(min, key)``, True for an unknown min."""
        return self.min.passes(test, key)

    def high(self, test: Test, key: bytes) -> BoolArray:
        """Return ``test(max, key)``, True for an unknown max."""
        return self.max.passes(test, key)


def counts(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return int64[n], -1 for null."""
    if column.null_count:
        column = column.fill_null(-1)
    return numbers(column)


def known_or_true(test: Any) -> BoolArray:
    """Return bool[n], True for null."""
    if test.null_count:
        test = test.fill_null(True)
    return flags(test)


def _as_chunked(keys: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(keys, pa.ChunkedArray):
        return keys
    return pa.chunked_array([keys])
