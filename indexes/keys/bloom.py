r"""``bloom/1``: a key range and a Bloom filter for each group and key part.

A lookup first finds the ranges that contain each key, in one pass over an interval tree, then
probes the filters of these ranges. Ranges exclude most groups for ordered keys, filters for random
keys. Filters grow with the data: about 10.5 bits per key at the default false-positive probability
of 1 %.

Byte layout, little-endian, without padding. An *entry* is the data of one group from one ``build``:

=================  =================================================================================
offset, size       meaning
=================  =================================================================================
0, 8               magic ``b"MDTBLO\x00\x01"``, the last byte is the version
8, 8               e: number of entries
16, 8              groups: every group number is smaller
24, 8              B: blocks of all filters
32, 8              r: bytes of all bounds
40, 32 B           filters: split-block Bloom filters of the entries in order (:mod:`indexes.bloom`)
..., 4 e           uint32: group of each entry
..., 4 e           uint32: blocks of each entry's filter, at least 1
..., e             uint8: bytes of each low bound, 0 to 64, or 255 for none
..., e             uint8: bytes of each high bound, as above
..., r             low bounds, then high bounds
..., 4             CRC-32 of everything before
=================  =================================================================================

A low bound is the smallest key, cut to 64 bytes. A high bound is the largest key. If that is longer
than 64 bytes, the high bound is the smallest string of at most 64 bytes above everything with the
same first 64 bytes. If there is none, the range has no upper end.

``merge`` retains the filters as they are, because filters of different sizes cannot be united. A
group that receives inserts in many commits therefore has many entries. The probabilities of a false
positive add up over the entries with a matching range. Rebuilding the group from its keys makes a
single entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import bloom, options
from indexes.arrays import distinct_numbers, expand_runs, stable_order
from indexes.base import BoolArray, Candidates, Int64Array, KeyHashes, KeyIndex
from indexes.interval_tree import IntervalList, IntervalTree
from indexes.keys.sealed import check_groups, check_renumbering, seal, unseal
from indexes.values import truncate_up

BOUND_BYTES_MAX = 64
"""Maximum length of a bound. Longer bounds cost space and hardly improve pruning."""
_MAGIC = b"MDTBLO\x00\x01"
_HEADER = struct.Struct("<8sQQQQ")
_NO_BOUND = 255
_PAIRS_PER_PASS = 2_000_000
"""Limits the memory of a pass when every range contains every key."""

Pairs = tuple[Int64Array, Int64Array]
"""Keys and entries to compare, int64[p] each."""

TREE, LIST, NONE = "tree", "list", "none"
_KEYS_PER_THREAD_MIN = 4096
"""Threads do not pay for fewer keys."""


class BloomKeyIndex(KeyIndex):
    """Key ranges and Bloom filters. ``locate`` is O(m log e + pairs whose range contains the key).

    >>> from indexes.key_hash import hash_keys
    >>> keys = pa.array(["id_1", "id_2", "id_3"])
    >>> key_part = BloomKeyIndex().build(keys, hash_keys(keys, 0), np.array([0, 0, 1]), groups=2)
    >>> asked = pa.array(["id_3", "id_4"])
    >>> candidates = BloomKeyIndex().locate(key_part, asked, hash_keys(asked, 0))
    >>> candidates.key.tolist(), candidates.group.tolist()  # id_3 may be in group 1, id_4 is absent
    ([0], [1])
    """

    name: ClassVar[str] = "bloom/1"
    can_index_log_files: ClassVar[bool] = False

    def __init__(
        self,
        fpp: float | str = 0.01,
        ranges: str = TREE,
        caching: str = "true",
        threads: int | str = 1,
        pairs: int | str = _PAIRS_PER_PASS,
    ) -> None:
        """Set the options. Raises ValueError for invalid options.

        Args:
            fpp: False-positive probability of each filter, in (0, 1).
            ranges: Search structure for ranges in lookups: TREE, LIST, or NONE to probe filters
                only.
            caching: "true" to verify and decode a key part once, when it is opened.
            threads: Number of threads for a lookup.
            pairs: Number of pairs (key, filter) that a thread holds in memory at a time.
        """
        if ranges not in (TREE, LIST, NONE):
            raise ValueError(f"invalid ranges={ranges!r}; use {TREE}, {LIST} or {NONE}")
        if caching not in ("true", "false"):
            raise ValueError(f"invalid caching={caching!r}; use true or false")
        self._ranges = ranges
        self._fpp = options.probability("fpp", fpp)
        self._threads = options.whole_number("threads", threads)
        self._pairs = options.whole_number("pairs", pairs)
        self._is_cached = caching == "true"

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build`. O(n).

        Raises ValueError for more than 2^32 groups.
        """
        check_groups("bloom", groups)
        present = np.flatnonzero(np.bincount(group, minlength=groups)).astype(np.int64)
        dense = np.zeros(groups, np.int64)
        dense[present] = np.arange(len(present))
        owner = dense[group]
        filters, blocks = bloom.build_many(hashes, owner, len(present), self._fpp)
        low, high = _bounds(keys, owner)
        return _encode(
            _KeyPart(groups, present, blocks, low, high, np.frombuffer(filters, np.uint8))
        )

    def opened(self, key_part: bytes | memoryview) -> bytes | memoryview | _Reader:
        """See :meth:`indexes.base.KeyIndex.opened`. Verifies and decodes the whole key part."""
        return self._reader(key_part) if self._is_cached else key_part

    def _reader(self, key_part: bytes | memoryview | _Reader) -> _Reader:
        if isinstance(key_part, _Reader):
            return key_part
        return _Reader.open(key_part, self._ranges)

    def locate(
        self, key_part: bytes | memoryview | _Reader, keys: pa.Array, hashes: KeyHashes
    ) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate`."""
        reader = self._reader(key_part)
        ranks = reader.ranks(keys)
        return self._filter_pairs(
            reader, hashes, reader.counts(ranks), lambda at: reader.stab(ranks[at])
        )

    def locate_within(
        self,
        key_part: bytes | memoryview | _Reader,
        keys: pa.Array,
        hashes: KeyHashes,
        key_place: Int64Array,
        group_place: Int64Array,
    ) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate_within`.

        If a key's partition has fewer entries than the key has matching ranges, the key is compared
        only with the entries of its partition. Many partitions with the same keys are then as cheap
        as one.
        """
        reader = self._reader(key_part)
        ranks = reader.ranks(keys)
        within = _PartitionPairs.create(reader, ranks, key_place, group_place[reader.part.group])
        return self._filter_pairs(
            reader, hashes, within.counts, lambda at: within.pairs(ranks[at], at)
        )

    def _filter_pairs(
        self,
        reader: _Reader,
        hashes: KeyHashes,
        counts: Int64Array,
        pairs_of: Callable[[slice], Pairs],
    ) -> Candidates:
        """Return the pairs that pass the filters.

        Args:
            counts: int64[m], the approximate number of pairs of each key.
            pairs_of: Returns the pairs (key in the pass, entry) for a slice of keys.
        """
        passes = _passes(counts, self._pairs, self._threads)

        def probe(at: slice) -> Pairs:
            key, entry = pairs_of(at)
            maybe = reader.filters.probe_pairs(entry, key + at.start, hashes)
            return key[maybe] + at.start, reader.part.group[entry[maybe]]

        results = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        if self._threads > 1 and len(passes) > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                results += pool.map(probe, passes)
        else:
            results += map(probe, passes)
        key, group = (np.concatenate(part) for part in zip(*results, strict=True))
        return _unique(key, group, reader)

    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """See :meth:`indexes.base.KeyIndex.merge`. O(bytes). The entries are retained
        separately.
        """
        check_groups("bloom", total)
        parts = [
            _renumber(_open(key_part), new) for key_part, new in zip(key_parts, groups, strict=True)
        ]
        none = np.zeros(0, np.int64)
        return _encode(
            _KeyPart(
                total,
                np.concatenate([none, *(part.group for part in parts)]),
                np.concatenate([none, *(part.blocks for part in parts)]),
                [bound for part in parts for bound in part.low],
                [bound for part in parts for bound in part.high],
                np.concatenate([np.zeros(0, np.uint8), *(part.filters for part in parts)]),
            )
        )


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """A verified key part.

    Attributes:
        group, blocks: int64[e], the group and the filter blocks of each entry.
        low, high: e bounds each.
        filters: uint8[32 B], the blocks of all filters.
    """

    group_count: int
    group: Int64Array
    blocks: Int64Array
    low: list[bytes | None]
    high: list[bytes | None]
    filters: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Reader:
    """A key part with its search structures.

    Attributes:
        ranges: None to probe every filter for every key.
        repeats: True if a group has several entries.
    """

    part: _KeyPart
    ranges: IntervalTree | None
    filters: bloom.FilterSet
    repeats: bool

    @classmethod
    def open(cls, key_part: bytes | memoryview, ranges: str) -> _Reader:
        part = _open(key_part)
        tree = None
        if ranges != NONE:
            kind = IntervalTree if ranges == TREE else IntervalList
            tree = kind(*(pa.array(bounds, pa.large_binary()) for bounds in (part.low, part.high)))
        repeats = len(np.unique(part.group)) < len(part.group)
        return cls(part, tree, bloom.filter_set(part.filters.data, part.blocks), repeats)

    def ranks(self, keys: pa.Array) -> Int64Array:
        """Return the ranks of keys among the bounds of ranges -> int64[m], or zeros without ranges.

        Strings are compared only here.
        """
        if self.ranges is None:
            return np.zeros(len(keys), np.int64)
        return self.ranges.ranks(keys)

    def counts(self, ranks: Int64Array) -> Int64Array:
        """Return the approximate number of entries to compare with each key -> int64[m]."""
        if self.ranges is None:
            return np.full(len(ranks), len(self.part.group), np.int64)
        return self.ranges.counts(ranks)

    def stab(self, ranks: Int64Array) -> Pairs:
        """Return all pairs (key, entry) whose range contains the key."""
        if self.ranges is None:
            count = len(self.part.group)
            return np.repeat(np.arange(len(ranks)), count), np.tile(np.arange(count), len(ranks))
        pairs = self.ranges.stab(ranks)
        return pairs.key, pairs.group


@dataclass(frozen=True, slots=True)
class _PartitionPairs:
    """Keys and entries with their partitions.

    Attributes:
        key_place: int64[m], the partition of each key.
        entry_place: int64[e], the partition of each entry.
        by_place: int64[e], the entries sorted by partition.
        start, stop: int64[m], the range of each key's partition in ``by_place``.
        counts: int64[m], the number of entries to compare with each key.
        by_partition: bool[m], True if these entries are selected by partition, False if by range.
    """

    reader: _Reader
    key_place: Int64Array
    entry_place: Int64Array
    by_place: Int64Array
    start: Int64Array
    stop: Int64Array
    counts: Int64Array
    by_partition: BoolArray

    @classmethod
    def create(
        cls, reader: _Reader, ranks: Int64Array, key_place: Int64Array, entry_place: Int64Array
    ) -> _PartitionPairs:
        by_place = stable_order(entry_place)
        start, stop = (
            np.searchsorted(entry_place[by_place], key_place, side) for side in ("left", "right")
        )
        near_count, range_count = stop - start, reader.counts(ranks)
        by_partition = near_count <= range_count
        return cls(
            reader,
            key_place,
            entry_place,
            by_place,
            start,
            stop,
            np.where(by_partition, near_count, range_count).astype(np.int64),
            by_partition,
        )

    def pairs(self, ranks: Int64Array, at: slice) -> Pairs:
        """Return the pairs (key, entry) in the same partition for the keys ``at``.

        ``ranks`` are the ranks of these keys among the bounds.
        """
        by_partition, by_range = (
            np.flatnonzero(self.by_partition[at]),
            np.flatnonzero(~self.by_partition[at]),
        )
        start, count = self.start[at][by_partition], (self.stop - self.start)[at][by_partition]
        key = np.repeat(by_partition, count)
        entry = self.by_place[expand_runs(start, count)]
        if self.reader.ranges is not None:
            in_range = self.reader.ranges.contains(ranks, key, entry)
            key, entry = key[in_range], entry[in_range]
        if not len(by_range):
            return key, entry
        range_pairs = self.reader.stab(ranks[by_range])
        range_key, range_entry = by_range[range_pairs[0]], range_pairs[1]
        same = self.key_place[at][range_key] == self.entry_place[range_entry]
        return np.append(key, range_key[same]), np.append(entry, range_entry[same])


def _passes(counts: Int64Array, pairs: int, threads: int) -> list[slice]:
    """Split keys into passes of about ``pairs`` pairs, and if it pays, into at least one pass per
    thread.

    ``counts``: The number of pairs of each key.
    """
    if not len(counts):
        return []
    ends = np.cumsum(counts + 1)
    if threads > 1 and len(counts) > _KEYS_PER_THREAD_MIN:
        pairs = min(pairs, -(-int(ends[-1]) // threads))
    cuts = np.unique(ends.searchsorted(np.arange(pairs, int(ends[-1]), pairs), "right"))
    cuts = cuts[(cuts > 0) & (cuts < len(counts))].tolist()
    return [slice(start, stop) for start, stop in pairwise([0, *cuts, len(counts)])]


def _open(key_part: bytes | memoryview) -> _KeyPart:
    """Verify and decode all of ``key_part``. Raises ValueError."""
    view, (entries, groups, blocks, bound_bytes) = unseal("bloom", key_part, _HEADER, _MAGIC)
    check_groups("bloom", groups)
    size = _HEADER.size + bloom.BLOCK_BYTES * blocks + 10 * entries + bound_bytes
    if len(view) != size:
        raise ValueError(f"bloom key part: {len(view)} bytes instead of {size}")
    at = _HEADER.size + bloom.BLOCK_BYTES * blocks
    group = np.frombuffer(view, np.dtype("<u4"), entries, at).astype(np.int64)
    filter_blocks = np.frombuffer(view, np.dtype("<u4"), entries, at + 4 * entries).astype(np.int64)
    low, high = _read_bounds(view[at + 8 * entries : at + 10 * entries], view[at + 10 * entries :])
    if entries and int(group.max()) >= groups:
        raise ValueError(f"bloom key part: group {group.max()} is not below {groups}")
    filters = np.frombuffer(view, np.uint8, bloom.BLOCK_BYTES * blocks, _HEADER.size)
    bloom.filter_set(filters.data, filter_blocks)
    return _KeyPart(groups, group, filter_blocks, low, high, filters)


def _encode(key_part: _KeyPart) -> bytes:
    bounds = [*key_part.low, *key_part.high]
    body = b"".join(bound for bound in bounds if bound is not None)
    parts = [
        _HEADER.pack(
            _MAGIC,
            len(key_part.group),
            key_part.group_count,
            len(key_part.filters) // bloom.BLOCK_BYTES,
            len(body),
        ),
        key_part.filters.tobytes(),
        key_part.group.astype(np.dtype("<u4")).tobytes(),
        key_part.blocks.astype(np.dtype("<u4")).tobytes(),
        bytes(_NO_BOUND if bound is None else len(bound) for bound in bounds),
        body,
    ]
    return seal(b"".join(parts))


def _read_bounds(
    sizes: memoryview, body: memoryview
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Split ``body`` into bounds. A loop over entries, of which each group has a few."""
    bounds: list[bytes | None] = []
    at = 0
    for size in sizes:
        if size == _NO_BOUND:
            bounds.append(None)
        elif size > BOUND_BYTES_MAX or at + size > len(body):
            raise ValueError(f"bloom key part: a bound of {size} bytes at byte {at} of {len(body)}")
        else:
            bounds.append(bytes(body[at : at + size]))
            at += size
    if at != len(body):
        raise ValueError(f"bloom key part: {len(body)} bytes of bounds, {at} used")
    return bounds[: len(sizes) // 2], bounds[len(sizes) // 2 :]


def _bounds(keys: pa.Array, owner: Int64Array) -> tuple[list[bytes | None], list[bytes | None]]:
    """Smallest and largest key of each owner, cut to valid bounds."""
    table = pa.table({"owner": owner, "key": keys.cast(pa.large_binary())})
    by_owner = (
        table.group_by("owner", use_threads=False)
        .aggregate([("key", "min"), ("key", "max")])
        .sort_by("owner")
    )
    low = [smallest[:BOUND_BYTES_MAX] for smallest in by_owner["key_min"].to_pylist()]
    return low, [
        truncate_up(largest, BOUND_BYTES_MAX, utf8=False)
        for largest in by_owner["key_max"].to_pylist()
    ]


def _renumber(key_part: _KeyPart, new: Int64Array) -> _KeyPart:
    """The entries of a key part with new group numbers, without the dropped groups."""
    check_renumbering("bloom", key_part.group_count, new)
    group = new[key_part.group]
    retained = group >= 0
    blocks = key_part.filters.reshape(-1, bloom.BLOCK_BYTES)[np.repeat(retained, key_part.blocks)]
    low = [bound for bound, keep in zip(key_part.low, retained, strict=True) if keep]
    high = [bound for bound, keep in zip(key_part.high, retained, strict=True) if keep]
    return _KeyPart(
        key_part.group_count, group[retained], key_part.blocks[retained], low, high, blocks.ravel()
    )


def _unique(key: Int64Array, group: Int64Array, reader: _Reader) -> Candidates:
    """Drop duplicate pairs, which exist only if a group has several entries."""
    if not reader.repeats:
        return Candidates(key, group)
    count = reader.part.group_count
    pairs = distinct_numbers(key * count + group)
    return Candidates(pairs // count, pairs % count)
