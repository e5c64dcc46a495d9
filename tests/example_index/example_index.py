"""``length/1``: an index from another package. It stores the shortest and the longest length of the
strings in a segment.

A string equals a literal only if both have the same number of bytes. A string with a prefix is at
least as long as the prefix.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import BoolArray, SkippingIndex, Summary, whole
from indexes.predicate import Leaf

_SUMMARY = struct.Struct("<4sqq")
_MAGIC = b"LEN1"


class LengthIndex(SkippingIndex):
    """Proves by length that no string of a segment equals, or begins with, a literal."""

    name = "length/1"

    def supports(self, type: pa.DataType) -> bool:
        """Accept strings."""
        return bool(pa.types.is_string(type) or pa.types.is_large_string(type))

    def summarize(self, values: pa.Array) -> bytes:
        """Magic, shortest and longest length in bytes. A segment without strings has 1 and 0."""
        lengths = pc.min_max(pc.binary_length(values)).as_py()
        return _SUMMARY.pack(_MAGIC, *((1, 0) if lengths["min"] is None else lengths.values()))

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return False for summaries whose lengths fit none of the literals."""
        decoded = [bytes(whole(summary)) for summary in summaries]
        if any(len(summary) != _SUMMARY.size or summary[:4] != _MAGIC for summary in decoded):
            raise ValueError("not a summary of length/1")
        bounds = np.array([_SUMMARY.unpack(summary)[1:] for summary in decoded], np.int64).reshape(
            -1, 2
        )
        literals: Any = leaf.value if leaf.op == "in" else (leaf.value,)
        if leaf.op not in ("=", "in", "starts with") or not all(
            isinstance(literal, str) for literal in literals
        ):
            return np.ones(len(summaries), np.bool_)
        sizes = np.array([len(literal.encode()) for literal in literals], np.int64)[:, None]
        fits = sizes <= bounds[:, 1]
        if leaf.op != "starts with":
            fits &= sizes >= bounds[:, 0]
        return np.asarray(fits.any(axis=0))
