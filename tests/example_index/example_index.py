"""``length/1``: an index of another package.  It keeps the shortest and the longest length of a
segment's strings.

A string equals a literal only if both have as many bytes; a string that starts with a prefix is at
least as long.
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
        """Only strings."""
        return bool(pa.types.is_string(type) or pa.types.is_large_string(type))

    def summarize(self, values: pa.Array) -> bytes:
        """Magic, shortest, longest length in bytes; a segment without strings has 1, 0."""
        lengths = pc.min_max(pc.binary_length(values)).as_py()
        return _SUMMARY.pack(_MAGIC, *((1, 0) if lengths["min"] is None else lengths.values()))

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """NO where no length fits one of the literals."""
        found = [bytes(whole(summary)) for summary in summaries]
        if any(len(summary) != _SUMMARY.size or summary[:4] != _MAGIC for summary in found):
            raise ValueError("not a summary of length/1")
        bounds = np.array([_SUMMARY.unpack(summary)[1:] for summary in found], np.int64).reshape(
            -1, 2
        )
        literals: Any = leaf.value if leaf.op == "in" else (leaf.value,)
        if leaf.op not in ("=", "in", "starts with") or not all(
            isinstance(one, str) for one in literals
        ):
            return np.ones(len(summaries), np.bool_)
        sizes = np.array([len(one.encode()) for one in literals], np.int64)[:, None]
        fits = sizes <= bounds[:, 1]
        if leaf.op != "starts with":
            fits &= sizes >= bounds[:, 0]
        return np.asarray(fits.any(axis=0))
