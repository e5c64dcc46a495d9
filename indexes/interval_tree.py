"""Find all key ranges [min, max] that contain each of many keys.

Hudi's Bloom index inserts the key range of every file into an unbalanced binary tree
(``KeyRangeLookupTree``, and the Hudi paper's section on indexing). It shuffles the files first to
keep the tree shallow, because sorted files would degenerate it to a list. Each key walks the tree
separately, comparing strings at every node, and nodes with equal minimum form a chain.

This module sorts the ranges once by their minimum, so only a prefix of them can contain a key.
Above the sorted ranges is a static perfect binary tree stored in arrays, one per level (a "segment
tree" in computational geometry). Each node stores the largest and the smallest maximum below it.
The search skips a node if its largest maximum is below the key. It reports a whole node without
descending if the node is inside the prefix and its smallest maximum reaches the key.

The depth is ceil(log2 N) for any insertion order. All keys descend together, with a numpy step
per level. Strings are compared only once, to turn keys and bounds into ranks. The tree compares
integers.

A key in k ranges costs at most O(log N + k log(N / k)) steps. That is O(log N) for disjoint ranges,
and O(log N + k) if all ranges overlap, because whole nodes are reported.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import UInt64Array, byte_rows
from indexes.base import BoolArray, Candidates, Int64Array

_WORD_BYTES = 8
_PIECE_KEYS = 16384
"""Keys per pass. Limits the memory of a pass and keeps its arrays in the CPU cache."""


_COMPARED_PAIRS = 1 << 20
"""Pairs per pass over a list of ranges."""
Keys: TypeAlias = pa.Array | pa.ChunkedArray | Int64Array
"""Keys, or their ranks from :meth:`IntervalTree.ranks`."""


class SortedBytes:
    """Sorted distinct byte strings with a vectorized binary search. O(bytes) memory."""

    def __init__(self, strings: pa.Array) -> None:
        """Build from ``strings``: string or binary [n]. Nulls are ignored. O(n log n)."""
        distinct = strings.drop_null().cast(pa.large_binary()).unique()
        self._rows = byte_rows(distinct.take(pc.array_sort_indices(distinct)))
        depth = -(-int(self._rows.lengths.max(initial=0)) // _WORD_BYTES)
        self._words = [self._rows.big_endian_words(level * _WORD_BYTES) for level in range(depth)]

    def __len__(self) -> int:
        return len(self._rows)

    def ranks(self, keys: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Return 2 i + 1 for a key equal to string i, and 2 i for a key between strings i - 1 and i
        -> int64[m].

        ``keys``: string or binary [m] without nulls. The search compares one 8-byte word at a time
        and narrows the range of strings with the same words, until at most the key itself remains.
        O(m log n).

        >>> SortedBytes(pa.array(["d", "b"])).ranks(pa.array(["a", "b", "c", "d", "e"])).tolist()
        [0, 1, 2, 3, 4]
        """
        rows = byte_rows(keys)
        low, high = np.zeros(len(rows), np.int64), np.full(len(rows), len(self), np.int64)
        open_keys = np.arange(len(rows), dtype=np.int64)
        for level, words in enumerate([*self._words, self._rows.lengths.astype(np.uint64)]):
            open_rows = rows.rows(open_keys)
            if level == len(self._words):
                key_words = open_rows.lengths.astype(np.uint64)
            else:
                key_words = open_rows.big_endian_words(level * _WORD_BYTES)
            low[open_keys], high[open_keys] = _narrow(
                words, key_words, low[open_keys], high[open_keys]
            )
            open_keys = open_keys[low[open_keys] < high[open_keys]]
        return 2 * low + (low < high)

    def check(self) -> None:
        """Assert that the strings are sorted and distinct, and that each has the rank of its
        position.
        """
        starts = self._rows.starts.tolist()
        strings = [
            bytes(self._rows.data[a : a + n])
            for a, n in zip(starts, self._rows.lengths.tolist(), strict=True)
        ]
        assert strings == sorted(set(strings))
        assert np.array_equal(
            self.ranks(pa.array(strings, pa.binary())), 2 * np.arange(len(self)) + 1
        )


def _narrow(
    words: UInt64Array, key_words: UInt64Array, low: Int64Array, high: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Narrow each range [low, high) of the sorted ``words`` to those equal to ``key_words``."""
    start, stop = int(low.min(initial=len(words))), int(high.max(initial=0))
    if (low == start).all() and (high == stop).all():  # the first word, or a common prefix
        window = words[start:stop]
        lower = np.searchsorted(window, key_words, "left").astype(np.int64)
        matches = lower < len(window)
        matches[matches] = window[lower[matches]] == key_words[matches]
        upper = lower.copy()
        upper[matches] = np.searchsorted(window, key_words[matches], "right")
        return lower + start, upper + start
    return _bisect(words, key_words, low, high, equal_is_below=False), _bisect(
        words, key_words, low, high, equal_is_below=True
    )


def _bisect(
    words: UInt64Array,
    key_words: UInt64Array,
    low: Int64Array,
    high: Int64Array,
    *,
    equal_is_below: bool,
) -> Int64Array:
    """Binary search for all keys in step, each in its own range. O(m log n)."""
    low, high = low.copy(), high.copy()
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        probed = words[np.minimum(middle, len(words) - 1)]
        below = (probed <= key_words if equal_is_below else probed < key_words) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low


class IntervalTree:
    """A static tree over N closed ranges of byte strings. A missing bound is unbounded."""

    def __init__(self, low: pa.Array, high: pa.Array) -> None:
        """Build the tree from bounds. O(N log N).

        A range with low > high is empty. Raises ValueError if the lengths differ or the type is
        wrong.

        Args:
            low, high: string or binary [N], null for unbounded.
        """
        if len(low) != len(high):
            raise ValueError(
                f"each range needs two bounds, got {len(low)} low and {len(high)} high bounds"
            )
        bounds = [_binary(low), _binary(high)]
        self._bounds = SortedBytes(pa.concat_arrays(bounds))
        first = _bound_ranks(self._bounds, bounds[0], missing=-1)
        last = _bound_ranks(self._bounds, bounds[1], missing=2 * len(self._bounds) + 1)
        self._order = np.argsort(first, kind="stable").astype(np.int64)
        self._first, self._last = first[self._order], np.sort(last)
        self._levels = _levels(last[self._order])

    def __len__(self) -> int:
        return len(self._order)

    def ranks(self, keys: Keys) -> Int64Array:
        """Return the ranks of keys among the bounds -> int64[m].

        The other methods accept ranks in place of keys. O(m log N).
        """
        if isinstance(keys, np.ndarray):
            return keys
        return self._bounds.ranks(keys)

    def counts(self, keys: Keys) -> Int64Array:
        """Return the number of ranges that contain each key -> int64[m].

        The number may be too high if ranges with low > high exist. O(m log N).
        """
        ranks = self.ranks(keys)
        counts = self._first.searchsorted(ranks, "right") - self._last.searchsorted(ranks, "left")
        return np.maximum(counts, 0).astype(np.int64)

    def stab(self, keys: Keys) -> Candidates:
        """Return all pairs (key, range) with low <= key <= high.

        ``keys``: string[m] without nulls, or their ranks. O(m (log N + k log(N / k))) for k ranges
        per key. Raises ValueError for another type.

        >>> minima, maxima = pa.array(["a", "c", None]), pa.array(["d", "f", "b"])
        >>> tree = IntervalTree(minima, maxima)  # a to d, c to f, up to b
        >>> pairs = tree.stab(pa.array(["b", "e", "z"]))
        >>> sorted(zip(pairs.key.tolist(), pairs.group.tolist()))
        [(0, 0), (0, 2), (1, 1)]
        """
        ranks = self.ranks(keys)
        pieces = [
            self._stab_ranks(ranks[start : start + _PIECE_KEYS], start)
            for start in range(0, len(ranks), _PIECE_KEYS)
        ]
        if not pieces or not len(self):
            return Candidates(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Candidates(
            np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])
        )

    def contains(self, keys: Keys, key: Int64Array, group: Int64Array) -> BoolArray:
        """Return True where range ``group[i]`` contains key ``key[i]`` -> bool[p]. O(m log N + p).

        Args:
            keys: string[m] without nulls, or their ranks.
            key, group: int64[p], positions in ``keys`` and in the ranges.

        >>> tree = IntervalTree(pa.array(["c", "a"]), pa.array(["f", "d"]))  # c to f, a to d
        >>> tree.contains(pa.array(["b", "e"]), np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()
        [False, True, True]
        """
        position_of = np.empty(len(self), np.int64)
        position_of[self._order] = np.arange(len(self))
        rank, position = self.ranks(keys)[key], position_of[group]
        return np.asarray(
            (self._first[position] <= rank) & (rank <= self._levels[0][0][position]), np.bool_
        )

    def check(self) -> None:
        """Assert sorted minima, a valid permutation, and correct bounds on every level. O(N)."""
        self._bounds.check()
        assert bool(np.all(self._first[1:] >= self._first[:-1]))
        assert np.array_equal(np.sort(self._order), np.arange(len(self)))
        for (largest, smallest), (above_largest, above_smallest) in zip(
            self._levels, self._levels[1:], strict=False
        ):
            assert np.array_equal(above_largest, largest.reshape(-1, 2).max(axis=1))
            assert np.array_equal(above_smallest, smallest.reshape(-1, 2).min(axis=1))
        assert len(self._levels[-1][0]) == 1 and len(self._levels[0][0]) >= len(self)

    def _stab_ranks(self, ranks: Int64Array, at: int) -> tuple[Int64Array, Int64Array]:
        """Descend from the root with a batch of keys. Key numbers in the result start at ``at``."""
        prefix = np.searchsorted(self._first, ranks, "right").astype(np.int64)
        key, node = np.flatnonzero(prefix), np.zeros(int(np.count_nonzero(prefix)), np.int64)
        pairs: list[tuple[Int64Array, Int64Array]] = []
        for height in range(len(self._levels) - 1, -1, -1):
            largest, smallest = self._levels[height]
            alive = (largest[node] >= ranks[key]) & ((node << height) < prefix[key])
            key, node = key[alive], node[alive]
            whole = (smallest[node] >= ranks[key]) & (((node + 1) << height) <= prefix[key])
            pairs.append(_expand(key[whole], node[whole] << height, 1 << height))
            key, node = np.repeat(key[~whole], 2), np.repeat(node[~whole] << 1, 2)
            node[1::2] += 1
        keys, places = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return keys + at, self._order[places]


class IntervalList(IntervalTree):
    """The same ranges, compared with every key in turn."""

    def stab(self, keys: Keys) -> Candidates:
        """Same result as :meth:`IntervalTree.stab`. O(m N).

        >>> ranges = IntervalList(pa.array(["a", "c"]), pa.array(["d", None]))
        >>> pairs = ranges.stab(pa.array(["b", "e"]))
        >>> pairs.key.tolist(), pairs.group.tolist()
        ([0, 1], [0, 1])
        """
        ranks, last = self.ranks(keys), self._levels[0][0][: len(self)]
        step = max(1, _COMPARED_PAIRS // max(1, len(self)))
        pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for at in range(0, len(ranks), step):
            piece = ranks[at : at + step, None]
            key, place = np.nonzero((self._first <= piece) & (piece <= last))
            pairs.append((key + at, self._order[place]))
        key, group = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return Candidates(key, group)


def _binary(bounds: pa.Array) -> pa.Array:
    """Cast bounds to large_binary, including a null-typed column without any bounds."""
    if isinstance(bounds, pa.ChunkedArray):
        bounds = bounds.combine_chunks()
    return bounds.cast(pa.large_binary())


def _bound_ranks(sorted_bytes: SortedBytes, bounds: pa.Array, missing: int) -> Int64Array:
    """Ranks of the bounds, ``missing`` for null."""
    return np.where(np.asarray(bounds.is_null()), missing, sorted_bytes.ranks(bounds))


def _levels(last: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
    """Largest and smallest maximum of every node, leaves first. Padded with empty ranges."""
    size = 1 << max(0, len(last) - 1).bit_length()
    padded = np.full(size, -2, np.int64)
    padded[: len(last)] = last
    levels = [(padded, padded)]
    while len(levels[-1][0]) > 1:
        largest, smallest = levels[-1]
        levels.append(
            (np.maximum(largest[::2], largest[1::2]), np.minimum(smallest[::2], smallest[1::2]))
        )
    return levels


def _expand(key: Int64Array, start: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """All pairs of each key with the ``count`` positions after its start."""
    if count == 1:
        return key, start
    return np.repeat(key, count), (start[:, None] + np.arange(count, dtype=np.int64)).ravel()
