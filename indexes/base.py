r"""Contracts for skipping indexes and key indexes. Read this first.

The law: **False is a proof, True is a guess.** An index may answer "no row here" only if the
summary alone proves it. When in doubt it answers "maybe". A wrong "maybe" costs time, a wrong "no"
loses rows.

An index is a pure function from Arrow and numpy values to bytes, and from bytes to verdicts. It
performs no I/O and keeps no state between calls. Its ``name`` ends in ``/<version>`` and is
persisted. Change the version whenever the bytes change their meaning. The table stores the bytes,
tracks the files they cover, and treats every other file as "maybe".

A *segment* is a run of rows in one file. A *group* is a file group. A record key stays in its group
until it is deleted.

A skipping index evaluates a ``Leaf`` (``indexes.predicate``), a test of one column. The table lists
the operators, the type of ``leaf.value``, and the matching rows. Null values match only where the
table says "null"::

    op           value                  rows that match
    =            literal                equal to it; NaN equals NaN, -0.0 equals 0.0
    !=           literal                not equal to it
    <            literal                below it; NaN is above every number
    <=           literal                below or equal to it
    >            literal                above it
    >=           literal                above or equal to it
    <=>          literal or None        equal to it; None: null
    in           tuple                  equal to any of the literals; None matches nothing
    not in       tuple                  equal to none of them; no rows at all if None is among them
    is null      None                   null
    is not null  None                   any other value
    starts with  str or bytes           text or bytes with this prefix
    like         str                    text that fits: % any text, _ one character, \ escapes both
    not like     str                    text that does not fit it
    match        str or (str, str)      text with all tokens of the first; the second is the
                                        tokenizer, "word" by default
    not match    str or (str, str)      text that lacks one of the tokens
    f            tuple                  f(columns…, *value) is true: a predicate function, ``Call``
    not f        tuple                  f(columns…, *value) is false

A literal is a bool, int, float, Decimal, str, bytes, date or datetime. It need not have the type of
the column. For example, an int column may be compared with 1.5 (see ``indexes.values.place``). A
value of None is SQL's null and matches no row, except as listed above. New operators may be added:
answer MAYBE to an unknown operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import stable_order
from indexes.predicate import Leaf

MAYBE = True
"""The segment may hold a matching row."""
NO = False
"""The segment holds no matching row. This is a proof."""

TABLE, PROCESS, DISK = "table", "process", "disk"
"""Storage of the key parts of a key index (:attr:`KeyIndex.kept`)."""

T = TypeVar("T")

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]


class Summary(Protocol):
    """The bytes of a summary, which may be in remote storage. An index reads only the ranges it
    needs.

    >>> summary = InMemory(b"header and body")
    >>> len(summary), bytes(summary.read(0, 6)), summary.keep(lambda: "parsed")
    (15, b'header', 'parsed')
    """

    def __len__(self) -> int:
        """Return the size in bytes. O(1), no I/O."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop), cut at the end like a slice.

        Storage errors pass through the index unchanged.
        """

    def keep(self, make: Callable[[], T]) -> T:
        """Return the cached result of ``make()``, calling it on a cache miss.

        Use it for parsed and verified data, which must depend on the bytes alone. The table limits
        the size of the cache and may evict entries.
        """


@dataclass(frozen=True, slots=True)
class InMemory:
    """A summary with its bytes in memory.

    >>> bytes(InMemory(b"abcdef").read(2, 4))
    b'cd'
    """

    data: bytes | memoryview

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop). O(1)."""
        return memoryview(self.data)[start:stop]

    def keep(self, make: Callable[[], T]) -> T:
        """Call ``make``. Nothing is cached."""
        return make()


class SkippingIndex(ABC):
    """An index that proves that segments, or rows of a segment, cannot match a test of a column.

    Subclasses have no state apart from their options. Options arrive as keyword arguments of
    ``__init__`` and are strings, as in ``"text(note, tokenizer='word')"``.

    A small summary is held in memory and tested by :meth:`prune`. An index that knows row positions
    sets :attr:`finds_rows`. The table then calls only :meth:`rows_within`, after the cheaper
    indexes and for the remaining segments. Such summaries may be large: read only the parts that
    the test needs, and verify the checksum of each part before use.

    >>> from indexes.column_stats import ColumnStats
    >>> index = ColumnStats()
    >>> fares = [InMemory(index.summarize(pa.array(v))) for v in ([4.0, 9.5], [20.0, 31.0])]
    >>> index.prune(fares, Leaf("fare", ">", 10), pa.float64()).tolist()
    [False, True]
    """

    name: ClassVar[str]
    """Persisted name and format version, for example ``"bitmap/1"``."""

    finds_rows: ClassVar[bool] = False
    """True if :meth:`rows` can name positions.

    The table may then summarize several segments as one, and splits the positions afterwards.
    """

    row_groups: ClassVar[bool] = False
    """True if each row group has its own summary.

    :meth:`summarize` then gets the rows of one row group at a time, and :meth:`prune` returns
    verdicts for row groups. The cost for a file with a single row group is unchanged. Cannot be
    combined with :attr:`finds_rows`, which is finer.
    """

    functions: ClassVar[frozenset[str]] = frozenset()
    """Names of the predicate functions (``indexes.functions``) that the index can use.

    The index never receives calls of other functions. A call is a :class:`~indexes.predicate.Call`:
    ``leaf.op`` is the name of the function, with the prefix "not " if negated, and ``leaf.value``
    is the tuple of its arguments. ``leaf.columns`` holds the columns in call order, all of them
    columns of the index. A row with a null in any of these columns matches neither the function nor
    its negation.
    """

    several_columns: ClassVar[bool] = False
    """True for an index on several columns, as in ``grid(lat, lon)``.

    Its values are structs. Their fields are named by column path, in the order of the
    specification. Fields may be null, the structs themselves are not. ``type`` is the struct type.
    A leaf tests one field, or several fields with a predicate function.
    """

    @abstractmethod
    def supports(self, type: pa.DataType) -> bool:
        """Return True if columns of ``type`` can be summarized. O(1).

        >>> from indexes.text import TextIndex
        >>> TextIndex().supports(pa.string()), TextIndex().supports(pa.int64())
        (True, False)
        """

    @abstractmethod
    def summarize(self, values: pa.Array) -> bytes:
        """Return the summary of a segment's column.

        ``values``: Array [rows] of a supported type, with nulls and NaN.

        >>> from indexes.column_bloom import ColumnBloom
        >>> len(ColumnBloom().summarize(pa.array(["ann", "bob", None])))
        52
        """

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Return True if the index may prove anything about ``leaf`` on a column of ``type``.

        If not, the table does not read the summaries. O(1), no summary needed.

        >>> from indexes.column_bloom import ColumnBloom
        >>> ColumnBloom().can_test(Leaf("rider", "<", "bob"), pa.string())
        False
        """
        return True

    @abstractmethod
    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE or NO for each of n summaries -> bool[n].

        ``leaf`` tests the summarized column of type ``type``. An unknown operator gets MAYBE.
        Raises ValueError for bytes that the index did not write. The table then treats the segment
        as MAYBE.

        >>> from indexes.column_bloom import ColumnBloom
        >>> riders = InMemory(ColumnBloom().summarize(pa.array(["ann", "bob"])))
        >>> ColumnBloom().prune([riders], Leaf("rider", "=", "cy"), pa.string()).tolist()
        [False]
        """

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        """Return the candidate positions for each of n summaries: a superset of the matching
        positions, or None for "any row may match".

        The caller may modify the bitmaps. Raises ValueError like :meth:`prune`.

        >>> from indexes.bitmap import BitmapIndex
        >>> status = InMemory(BitmapIndex().summarize(pa.array(["paid", "lost", "paid"])))
        >>> BitmapIndex().rows([status], Leaf("status", "=", "paid"), pa.string())
        [BitMap([0, 2])]
        """
        return [None] * len(summaries)

    def rows_within(
        self,
        summaries: Sequence[Summary],
        tests: Sequence[Leaf],
        type: pa.DataType,
        within: Sequence[BitMap | None],
    ) -> list[BitMap | None]:
        """Return for each summary a superset of the positions in ``within`` that match all
        ``tests``, or None for "any row may match".

        Testing several leaves together may be cheaper, as for the two ends of a range. The result
        may contain positions outside of ``within``.

        Args:
            tests: At least one leaf. Each of them passes :meth:`can_test`.
            within: Positions that remain after tests of other columns, None for all. Do not modify
                them.

        >>> from indexes.bitmap import BitmapIndex
        >>> fares = InMemory(BitmapIndex().summarize(pa.array([4, 7, 9])))
        >>> tests = [Leaf("fare", ">", 4), Leaf("fare", "<", 9)]
        >>> BitmapIndex().rows_within([fares], tests, pa.int64(), [None])
        [BitMap([1])]
        """
        positions = self.rows(summaries, tests[0], type)
        for test in tests[1:]:
            positions = intersected(positions, self.rows(summaries, test, type))
        return positions


def intersected(
    left: Sequence[BitMap | None], right: Sequence[BitMap | None]
) -> list[BitMap | None]:
    """Return the pairwise intersections. None stands for all positions.

    >>> intersected([BitMap([1, 2]), None], [BitMap([2, 3]), BitMap([4])])
    [BitMap([2]), BitMap([4])]
    """
    return [_intersect(a, b) for a, b in zip(left, right, strict=True)]


def _intersect(a: BitMap | None, b: BitMap | None) -> BitMap | None:
    if a is None:
        return b
    if b is None:
        return a
    return a & b


def whole(summary: Summary) -> memoryview:
    """Return all bytes of a small summary.

    >>> bytes(whole(InMemory(b"abc")))
    b'abc'
    """
    return summary.read(0, len(summary))


_CACHED_ORDER_MAX = 1 << 20
"""Largest number of hashes with a cached order. The order takes half the memory of the hashes."""


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """128-bit hashes of n record keys, as two words: ``hi`` and ``lo``, uint64[n] each.

    Two keys are the same if both words are equal.

    >>> from indexes.key_hash import hash_keys
    >>> hashes = hash_keys(pa.array(["id_1", "id_2", "id_1"]), seed=0)
    >>> len(hashes), bool(hashes.hi[0] == hashes.hi[2])
    (3, True)
    """

    hi: UInt64Array
    lo: UInt64Array
    _order: list[Int64Array] = field(default_factory=list, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.hi)

    @classmethod
    def concat(cls, parts: Sequence[KeyHashes]) -> KeyHashes:
        """Concatenate at least one part.

        >>> from indexes.key_hash import hash_keys
        >>> len(KeyHashes.concat([hash_keys(pa.array(["id_1"]), 0), KeyHashes.none()]))
        1
        """
        hi, lo = [part.hi for part in parts], [part.lo for part in parts]
        return cls(np.concatenate(hi), np.concatenate(lo))

    @classmethod
    def none(cls) -> KeyHashes:
        """Return the hashes of zero keys."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))

    def take(self, rows: npt.NDArray[np.integer] | BoolArray) -> KeyHashes:
        """Return the hashes at ``rows``, which are positions or a mask. O(len(rows)).

        >>> hashes = KeyHashes(np.array([5, 7], np.uint64), np.array([1, 2], np.uint64))
        >>> hashes.take(np.array([1])).hi.tolist()
        [7]
        """
        return KeyHashes(self.hi[rows], self.lo[rows])

    def slice(self, first: int, count: int | None = None) -> KeyHashes:
        """Return ``count`` hashes from position ``first``, or all hashes from there. O(1).

        >>> hashes = KeyHashes(np.array([5, 7], np.uint64), np.array([1, 2], np.uint64))
        >>> hashes.slice(1).hi.tolist()
        [7]
        """
        stop = None if count is None else first + count
        return KeyHashes(self.hi[first:stop], self.lo[first:stop])

    def ascend(self) -> bool:
        """Return True if each hash is above the one before it. O(n)."""
        hi, lo = self.hi, self.lo
        above = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
        return bool(above.all())

    def order(self) -> Int64Array:
        """Return the permutation that sorts by (hi, lo) -> int64[n]. O(n log n).

        >>> KeyHashes(np.array([2, 1], np.uint64), np.array([0, 9], np.uint64)).order().tolist()
        [1, 0]
        """
        order = stable_order(self.hi)
        hi = self.hi[order]
        if len(hi) > 1 and bool(np.any(hi[1:] == hi[:-1])):
            order = np.lexsort((self.lo, self.hi)).astype(np.int64)
        return order

    def kept_order(self) -> Int64Array:
        """Return :meth:`order`, cached for up to 2^20 hashes.

        Use it to look up the same keys in many key parts.
        """
        if self._order:
            return self._order[0]
        order = self.order()
        if len(order) <= _CACHED_ORDER_MAX:
            self._order.append(order)
        return order


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pairs (key, group): the key may be in the group. Pairs are unique and unordered.

    Attributes:
        key: int64[p], positions in the requested keys.
        group: int64[p], positions in the groups.
        whole: int64[w], the groups that may hold every key. They are in no pair.

    >>> candidates = Candidates(np.array([0]), np.array([2]), whole=np.array([5]))
    >>> [column.tolist() for column in candidates.pairs(count=2)]
    [[0, 0, 1], [2, 5, 5]]
    """

    key: Int64Array
    group: Int64Array
    whole: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def pairs(self, count: int) -> tuple[Int64Array, Int64Array]:
        """Return all pairs for ``count`` keys -> (int64[p], int64[p]), pairs of :attr:`whole`
        groups last.

        O(p + w count).

        >>> [c.tolist() for c in Candidates(np.array([1]), np.array([0]), np.array([4])).pairs(2)]
        [[1, 0, 1], [0, 4, 4]]
        """
        everywhere = np.tile(np.arange(count), len(self.whole))
        return np.append(self.key, everywhere), np.append(self.group, np.repeat(self.whole, count))


class KeyIndex(ABC):
    """An index that finds the file groups that may hold given record keys.

    The table passes the keys *inserted* by a commit with the group of each, and the index returns
    one *key part* (bytes) for them. A key stays in its group until it is deleted, so updates need
    no key part. Entries of deleted keys may remain, because the table verifies every pair.

    >>> from indexes.key_hash import hash_keys
    >>> from indexes.keys.record import RecordKeyIndex
    >>> index, keys = RecordKeyIndex(), pa.array(["id_1", "id_2"])
    >>> key_part = index.build(keys, hash_keys(keys, 0), group=np.array([0, 1]), groups=2)
    >>> candidates = index.locate(key_part, keys, hash_keys(keys, 0))
    >>> sorted(zip(candidates.key.tolist(), candidates.group.tolist()))
    [(0, 0), (1, 1)]
    """

    name: ClassVar[str]
    """Persisted name and format version, for example ``"bloom/1"``."""

    can_index_log_files: ClassVar[bool]
    """True if inserts may go to log files. False if Hudi's counterpart of this index reads only
    base files.
    """

    kept: ClassVar[str] = TABLE
    """Storage of the key parts: TABLE, PROCESS or DISK.

    TABLE commits them with the rows. PROCESS keeps them in memory and DISK on the local disk. In
    both cases each reader builds them from the key hashes that the table stores for every file.
    Such an index receives nulls as keys and must work with the hashes alone.
    """

    by_text: ClassVar[bool] = False
    """True if the index gets record keys as text. Otherwise it gets bytes that sort like the key
    columns.
    """

    def buckets(self, keys: pa.Array, partition: npt.NDArray[np.object_]) -> Int64Array | None:
        """Return the bucket number of each key -> int64[n], below 10^8. None if new keys may go
        anywhere.

        ``partition`` holds the partition path of each key. The table puts new keys of the same
        partition and bucket into one group, whose file ID begins with the bucket number.

        >>> from indexes.keys.bucket import BucketKeyIndex
        >>> paths = np.array(["city=Oslo", "city=Rome"], object)
        >>> BucketKeyIndex(buckets="4").buckets(pa.array(["id_1", "id_2"]), paths).tolist()
        [0, 1]
        """
        return None

    @abstractmethod
    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """Return the key part for n inserted keys.

        Keys may repeat, in the same group or in several.

        Args:
            keys: string or binary[n]. The bytes sort like the key columns of the table. With a
                single string column they are the record keys.
            hashes: Hashes of the record keys.
            group: int64[n] in [0, groups), the group of each key.
            groups: Number of groups.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.simple import SimpleKeyIndex
        >>> keys = pa.array(["id_1", "id_2"])
        >>> len(SimpleKeyIndex().build(keys, hash_keys(keys, 0), np.array([0, 2]), groups=3))
        28
        """

    def build_of_groups(self, keys: Sequence[pa.Array], hashes: Sequence[KeyHashes]) -> bytes:
        """Return the key part for keys given group by group.

        ``keys`` and ``hashes`` have an item for each group and are not empty. The result is that
        of :meth:`build`. Override this method if the index does not need all keys at once, to avoid
        concatenating millions of keys.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.simple import SimpleKeyIndex
        >>> keys = [pa.array(["id_1"]), pa.array(["id_2", "id_3"])]
        >>> key_part = SimpleKeyIndex().build_of_groups(keys, [hash_keys(k, 0) for k in keys])
        >>> SimpleKeyIndex().locate(key_part, keys[0], hash_keys(keys[0], 0)).whole.tolist()
        [0, 1]
        """
        group = np.repeat(np.arange(len(keys)), [len(part) for part in keys])
        words = (
            np.concatenate(word)
            for word in zip(*((part.hi, part.lo) for part in hashes), strict=True)
        )
        return self.build(pa.concat_arrays(keys), KeyHashes(*words), group, len(keys))

    def opened(self, key_part: bytes | memoryview) -> Any:
        """Return an object that :meth:`locate` and :meth:`locate_within` accept in place of the
        bytes.

        The default is the bytes. Override this method to cache verified data between lookups. The
        object must be thread-safe. Raises ValueError for bytes that the index did not write.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.record import RecordKeyIndex
        >>> index, keys = RecordKeyIndex(), pa.array(["id_1"])
        >>> opened = index.opened(index.build(keys, hash_keys(keys, 0), np.array([0]), groups=1))
        >>> index.locate(opened, keys, hash_keys(keys, 0)).group.tolist()
        [0]
        """
        return key_part

    @abstractmethod
    def locate(self, key_part: Any, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """Return a superset of the pairs (key, group of the key part) for m keys.

        Raises ValueError for bytes that the index did not write. The table then takes all groups of
        the key part as candidates.

        Args:
            key_part: bytes, a memoryview, or the result of :meth:`opened`.
            keys, hashes: As in :meth:`build`.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.record import RecordKeyIndex
        >>> index, keys = RecordKeyIndex(), pa.array(["id_1", "id_2"])
        >>> key_part = index.build(keys, hash_keys(keys, 0), np.array([0, 1]), groups=2)
        >>> keys = pa.array(["id_2"])
        >>> candidates = index.locate(key_part, keys, hash_keys(keys, 0))
        >>> candidates.key.tolist(), candidates.group.tolist()
        ([0], [1])
        """

    def locate_within(
        self,
        key_part: Any,
        keys: pa.Array,
        hashes: KeyHashes,
        key_place: Int64Array,
        group_place: Int64Array,
    ) -> Candidates:
        """Return the pairs of :meth:`locate`, restricted to a key and a group of the same
        partition.

        Override this method if the index compares keys with each group in turn, and skip the groups
        of other partitions. ``whole`` groups are not restricted. Raises ValueError like
        :meth:`locate`, and IndexError if the key part has more groups than ``group_place``.

        Args:
            key_place: int64[m], the number of each key's partition, 0 or more.
            group_place: int64[groups of the key part], the number of each group's partition, -1 for
                a partition without keys.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.record import RecordKeyIndex
        >>> index, keys = RecordKeyIndex(), pa.array(["id_1", "id_1"])
        >>> key_part = index.build(keys, hash_keys(keys, 0), np.array([0, 1]), groups=2)
        >>> candidates = index.locate_within(
        ...     key_part, keys[:1], hash_keys(keys[:1], 0), np.array([7]), np.array([7, 8])
        ... )
        >>> candidates.group.tolist()  # group 1 is in another partition
        [0]
        """
        candidates = self.locate(key_part, keys, hashes)
        same = key_place[candidates.key] == group_place[candidates.group]
        return Candidates(candidates.key[same], candidates.group[same], candidates.whole)

    @abstractmethod
    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """Merge key parts into one that gives the same answers.

        Args:
            groups: For each key part int64[its groups], the new number of each old group in [0,
                total), or -1 to drop the group.
            total: Number of groups of the result.

        >>> from indexes.key_hash import hash_keys
        >>> from indexes.keys.record import RecordKeyIndex
        >>> index, keys = RecordKeyIndex(), pa.array(["id_1", "id_2"])
        >>> old = index.build(keys, hash_keys(keys, 0), np.array([0, 1]), groups=2)
        >>> merged = index.merge([old], [np.array([-1, 5])], total=6)
        >>> index.locate(merged, keys, hash_keys(keys, 0)).group.tolist()
        [5]
        """
