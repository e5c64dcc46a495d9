"""Key maps of more rows than memory should hold, built in a scratch file.

Entries are partitioned by the first bits of their hashes, and sorted part by part.  The bytes are
as from :func:`mdt.metadata.files.key_map.encode`.  Its shards are cut by the first bits too, and
each part has whole shards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import stable_order
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.metadata.files import key_map
from mdt.metadata.files.key_map import Packed
from mdt.stores.scratch import Scratch

_PART_ROWS = 1 << 17
"""Approximate rows of a part: 4 MB, and about five times that while it is sorted."""


class LargeKeyMap:
    """The key map of a file with ``rows`` rows, which are added in order.  Not thread-safe."""

    def __init__(self, rows: int, directory: str = "") -> None:
        """Create a scratch file in ``directory``.  See :class:`mdt.stores.scratch.Scratch`."""
        self._rows, self._added, self._directory = rows, 0, directory
        self._bits = min(key_map.shard_bits(rows), (rows // _PART_ROWS).bit_length())
        self._scratch = Scratch(directory)
        self._parts: list[list[tuple[int, int]]] = [[] for _ in range(1 << self._bits)]
        self._bounds: list[tuple[int, int]] = []

    def add(self, hashes: KeyHashes, ordering: UInt64Array | None) -> None:
        """Add the keys of the next rows.  ``ordering`` is None in all calls or in none."""
        rows = len(hashes)
        if not rows:
            return
        columns = [
            hashes.hi,
            hashes.lo,
            np.arange(self._added, self._added + rows, dtype=np.uint64),
        ]
        if ordering is not None:
            columns.append(ordering)
            self._bounds.append((int(ordering.min()), int(ordering.max())))
        self._added += rows
        part = key_map.shard_of(hashes.hi, self._bits)
        order = stable_order(part)
        entries = np.stack(columns, axis=1)[order]
        numbers, first = np.unique(part[order], return_index=True)
        for number, piece in zip(numbers.tolist(), np.split(entries, first[1:]), strict=True):
            self._parts[number].append((self._scratch.append(piece.tobytes()), len(piece)))

    def encode(self) -> pa.Buffer | None:
        """Return the bytes, in memory that the system may reclaim, or None for a file without
        rows.
        """
        assert self._added == self._rows, (self._added, self._rows)
        if not self._rows:
            return None
        least = min((low for low, _ in self._bounds), default=0)
        widths = [key_map.width_of(self._rows - 1)]
        if self._bounds:
            widths.insert(0, key_map.width_of(max(high for _, high in self._bounds) - least))
        shards = key_map.shard_bits(self._rows)
        output, begin = Scratch(self._directory), key_map.head_bytes(shards)
        size = output.reserve(begin) + begin
        places = [
            output.reserve(self._rows * width) for width in (8, key_map.LO_BITS // 8, *widths)
        ]
        starts, checks, at = [np.zeros(1, np.int64)], list[int](), 0
        for part in range(len(self._parts)):
            arrays = self._ordered(part, widths, least)
            for place, array in zip(places, arrays, strict=True):
                output.put(place + at * (array.nbytes // max(1, len(array))), array.tobytes())
            bounds = key_map.shard_bounds(
                arrays[0], shards, part << (shards - self._bits), 1 << (shards - self._bits)
            )
            checks += key_map.checksums(arrays, bounds)
            starts.append(at + bounds[1:])
            at += len(arrays[0])
        assert size == begin, "the arrays follow the head"
        head = key_map.head(self._rows, widths, least, np.concatenate(starts), checks)
        output.put(0, head)
        self._scratch.close()
        return output.mapped()

    def _ordered(self, part: int, widths: list[int], least: int) -> list[npt.NDArray[Any]]:
        """Return the columns of a part as they are stored, sorted by hash."""
        columns = 2 + len(widths)
        blocks = [
            np.frombuffer(self._scratch.read(start, 8 * columns * rows), np.uint64).reshape(
                -1, columns
            )
            for start, rows in self._parts[part]
        ]
        entries = np.concatenate([np.empty((0, columns), np.uint64), *blocks])
        hashes = KeyHashes(np.ascontiguousarray(entries[:, 0]), np.ascontiguousarray(entries[:, 1]))
        order: Int64Array = hashes.order()
        packed = [Packed.pack(entries[order, 2], width=widths[-1]).data]
        if len(widths) > 1:
            packed.insert(0, Packed.pack(entries[order, 3], least, width=widths[0]).data)
        return [hashes.hi[order].astype("<u8"), key_map.upper(hashes.lo)[order], *packed]
