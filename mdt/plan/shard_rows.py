"""The files that a plan asks about, by their shards: positions in a file are positions in its shard, and back.

Conditions are intersected and united in the positions of shards; only what is left in the end is cut into those of files.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from mdt.metadata.snapshot import Snapshot

Rows = list[BitMap | None]
"""For each of some shards the positions that may match; None: any."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """m shards and n files of theirs, which are asked about.

    ``shards``: int64[m], rising.  ``files``: int64[n], rising, and so by shard and first row.  ``start``: int64[m + 1],
    where the files of a shard begin among them.  ``first``, ``rows``: int64[n], of each file.
    """

    shards: Int64Array
    files: Int64Array
    start: Int64Array
    first: Int64Array
    rows: Int64Array

    @classmethod
    def of(cls, snapshot: Snapshot, files: Int64Array) -> ShardRows:
        """Return the shards of ``files``, numbers that rise."""
        shards, start = np.unique(snapshot.shards.of_file[files], return_index=True)
        first = snapshot.files.numpy("first_row")[files]
        return cls(shards, files, np.append(start, len(files)), first, snapshot.rows[files])

    def __len__(self) -> int:
        return len(self.shards)

    def within(self, known: Mapping[int, BitMap]) -> Rows:
        """Return the positions of each shard that matter: those of its asked files, of some of which they are ``known``."""
        return [self._within(at, known) for at in range(len(self))]

    def _within(self, at: int, known: Mapping[int, BitMap]) -> BitMap | None:
        mine = self._members(at)
        if len(mine) == 1 and not self.first[mine[0]] and self.files[mine[0]] not in known:
            return None  # it may be the only file of the shard
        found = BitMap()
        for n, low in zip(mine, self.first[mine].tolist(), strict=True):
            rows = known.get(int(self.files[n]))
            if rows is None:
                found.add_range(low, low + int(self.rows[n]))
            else:
                found |= rows.shift(low)
        return found

    def alive(self, answers: Rows) -> BoolArray:
        """Return which files have a position among the ``answers`` about their shards, or None -> bool[n]."""
        alive = np.ones(len(self.files), np.bool_)
        for at, positions in enumerate(answers):
            if positions is not None:
                mine = self._members(at)
                ends = (self.first[mine] + self.rows[mine]).tolist()
                pairs = zip(self.first[mine].tolist(), ends, strict=True)
                alive[mine] = [positions.range_cardinality(low, high) > 0 for low, high in pairs]
        return alive

    def of_files(self, answers: Rows) -> Iterator[tuple[int, BitMap]]:
        """Yield each file with its own positions; those of shards about which the answer is None are left out."""
        for at, positions in enumerate(answers):
            if positions is not None:
                mine = self._members(at)
                yield from zip(
                    self.files[mine].tolist(), cut(positions, self.first[mine], self.rows[mine]), strict=True
                )

    def _members(self, at: int) -> Int64Array:
        return np.arange(self.start[at], self.start[at + 1])


def cut(hits: BitMap, first: Int64Array, rows: Int64Array) -> Iterator[BitMap]:
    """Yield for some files of a shard which of their rows are among ``hits``.

    ``first``: int64[n], rising, the positions of their first rows.  ``rows``: int64[n], how many they have.
    """
    if len(first) == 1 and not first[0] and (not hits or hits.max() < rows[0]):
        yield hits
        return
    positions = np.frombuffer(hits.to_array(), np.uint32)
    starts, stops = np.searchsorted(positions, first), np.searchsorted(positions, first + rows)
    owner = np.searchsorted(first, positions, side="right") - 1
    own = (positions - first[owner]).astype(np.uint32).tobytes()  # of rows of other files: not used
    size = positions.itemsize
    for start, stop in zip((size * starts).tolist(), (size * stops).tolist(), strict=True):
        yield BitMap(array("I", own[start:stop])) if stop > start else BitMap()


def first_answers(n: int, asks: Iterable[Callable[[list[int]], Rows]]) -> Rows:
    """Return for each of n shards what the first of ``asks`` says that does not say None; each is told which are open."""
    found: Rows = [None] * n
    for ask in asks:
        left = [at for at, rows in enumerate(found) if rows is None]
        if left:
            for at, rows in zip(left, ask(left), strict=True):
                found[at] = rows
    return found
