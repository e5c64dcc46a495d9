r"""The two contracts for indexes, and the law that they obey.  Read this first.

The law: **False is a proof, True is a guess.**  An index may answer "no row here" only if it can
prove it from the summary alone.  In doubt it answers "maybe".  A wrong "maybe" costs time, a wrong
"no" loses rows.

An index is pure: Arrow and numpy in, bytes out; bytes in, verdict out.  It performs no I/O, knows
no table, and keeps no state between calls.  Its ``name`` ends in ``/<version>`` and is persisted;
when the bytes change their meaning, the version must change too.  The table keeps the bytes, knows
which files they cover, and treats every file that is not covered as "maybe".

A *segment* is a run of rows in one file.  A *group* is a file group: the place where a record key
lives for good.

What a skipping index is asked is a ``Leaf`` (``indexes.predicate``): one test of a column.  Its
operators, what stands in ``leaf.value``, and which rows match; where the table says "null", rows
whose column is null match, nowhere else::

    op           value                  rows that match
    =            literal                equal to it; NaN equals NaN, -0.0 equals 0.0
    !=           literal                not equal to it
    <            literal                below it; NaN is above every number
    <=           literal                below or equal to it
    >            literal                above it
    >=           literal                above or equal to it
    <=>          literal or None        equal to it; None: null
    in           tuple                  equal to one of the literals; None matches nothing
    not in       tuple                  equal to none of them; no row at all if None is among them
    is null      None                   null
    is not null  None                   all others
    starts with  str or bytes           text or bytes that begin so
    like         str                    text that fits: % any text, _ one character, \ escapes both
    not like     str                    text that does not fit it
    match        str or (str, str)      text with all tokens of the first; the second is the
                                        tokenizer, "word" by default
    not match    str or (str, str)      text without one of them
    f            tuple                  f(columns…, *value) is true: a predicate function, ``Call``
    not f        tuple                  f(columns…, *value) is false

A literal is a bool, int, float, Decimal, str, bytes, date or datetime, not always of the column's
own type: an int column may be compared with 1.5 (``indexes.values.place`` brings a literal to a
type).  A value of None, other than above, is SQL's null: no row matches.  Further operators may
come: one that an index does not know proves nothing, so answer MAYBE.
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
"""A segment that may hold a matching row."""
NO = False
"""A segment that is proven to hold none."""

TABLE, PROCESS, DISK = "table", "process", "disk"
"""Where the key parts of a key index are kept (:attr:`KeyIndex.kept`)."""

T = TypeVar("T")

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]


class Summary(Protocol):
    """The bytes of one summary, which need not be in memory: an index reads the ranges that it
    needs.
    """

    def __len__(self) -> int:
        """Return the size in bytes.  O(1), no I/O."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop), cut at the end as slices are.

        What it raises when the bytes cannot be had passes through the index untouched.
        """

    def keep(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returned for this summary at an earlier call, or call it.

        For what an index has parsed and checked, so that the next test need not do it again; the
        table bounds how much is kept, and may forget it.  It must depend on nothing but the bytes.
        """


@dataclass(frozen=True, slots=True)
class InMemory:
    """A summary whose bytes are at hand."""

    data: bytes | memoryview

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  O(1)."""
        return memoryview(self.data)[start:stop]

    def keep(self, make: Callable[[], T]) -> T:
        """Call ``make``; nothing is kept."""
        return make()


class SkippingIndex(ABC):
    """Proves for one column that segments, or rows of a segment, cannot match a test.

    Subclasses are stateless apart from their options, which arrive as keyword arguments of
    ``__init__``, all strings (as in ``"text(note, tokenizer='word')"``).

    A small summary lies in memory and is asked by :meth:`prune`.  An index that knows positions
    sets :attr:`finds_rows`: it is asked by :meth:`rows` alone, after cheaper indexes, for the
    segments that those left; its summaries may be large, and it should read only the parts that the
    test needs and check each part (a checksum) before it believes it.
    """

    name: ClassVar[str]
    """Persisted name and format version, for example ``"bitmap/1"``."""

    finds_rows: ClassVar[bool] = False
    """Whether :meth:`rows` knows more than "any row may match".

    The table may have several segments summarized as one, whose positions it then tells apart.
    """

    row_groups: ClassVar[bool] = False
    """Whether every row group is summarized, and proved, alone.

    :meth:`summarize` then gets the rows of one row group at a time and :meth:`prune` answers for
    row groups, as column statistics do; nothing else changes, and a file of one row group costs
    what it costs without.  Not together with :attr:`finds_rows`, which is finer.
    """

    functions: ClassVar[frozenset[str]] = frozenset()
    """The predicate functions (``indexes.functions``) about which it may prove something.

    Others are never shown to it.  A leaf of one is a :class:`~indexes.predicate.Call`: ``leaf.op``
    is the function's name, or "not " and the name, ``leaf.value`` the tuple of its arguments,
    ``leaf.columns`` its columns in the order of the call, all of them columns of the index.  A row
    that is null in one of them matches neither.
    """

    several_columns: ClassVar[bool] = False
    """Whether it is of columns together, as in ``grid(lat, lon)``.

    Its values are then structs, whose fields have the paths of the columns as names, in the order
    of the specification; no struct is null itself, the fields may be.  ``type`` is that struct, and
    a leaf tests one of its fields, or several with a predicate function.
    """

    @abstractmethod
    def supports(self, type: pa.DataType) -> bool:
        """Return whether columns of ``type`` can be summarized.  O(1)."""

    @abstractmethod
    def summarize(self, values: pa.Array) -> bytes:
        """Return the summary of one segment's column; ``values``: any supported type [rows], nulls
        and NaN included.
        """

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Return whether the index may prove anything about ``leaf`` on a column of ``type``.
        O(1), no summary needed.

        If not, the table does not even read the summaries.
        """
        return True

    @abstractmethod
    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE or NO for each of n summaries -> bool[n].

        ``leaf`` tests the summarized column, whose type is ``type``.  An operator that the index
        does not know gives MAYBE.  Raises ValueError for bytes that it did not write; the table
        then treats the segment as MAYBE.
        """

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        """Return for each of n summaries a superset of the positions that match ``leaf``, None for
        "any row may match".

        A bitmap is the caller's to change.  Raises ValueError as :meth:`prune` does.
        """
        return [None] * len(summaries)

    def rows_within(
        self,
        summaries: Sequence[Summary],
        tests: Sequence[Leaf],
        type: pa.DataType,
        within: Sequence[BitMap | None],
    ) -> list[BitMap | None]:
        """Return for each summary a superset of the positions that are ``within`` and match all
        ``tests``, or None.

        ``tests``: at least one, each of which :meth:`can_test`; together they may cost less than
        one by one (a range). ``within``: positions that tests of other columns have left (None:
        all); what else is returned does not matter. They must not be changed.
        """
        found = self.rows(summaries, tests[0], type)
        for test in tests[1:]:
            found = intersected(found, self.rows(summaries, test, type))
        return found


def intersected(
    some: Sequence[BitMap | None], others: Sequence[BitMap | None]
) -> list[BitMap | None]:
    """Return the positions that are in both, pair by pair; None: any.

    >>> intersected([BitMap([1, 2]), None], [BitMap([2, 3]), BitMap([4])])
    [BitMap([2]), BitMap([4])]
    """
    return [_in_both(a, b) for a, b in zip(some, others, strict=True)]


def _in_both(a: BitMap | None, b: BitMap | None) -> BitMap | None:
    if a is None:
        return b
    if b is None:
        return a
    return a & b


def whole(summary: Summary) -> memoryview:
    """Return all bytes of a summary; for indexes whose summaries are small."""
    return summary.read(0, len(summary))


_ORDER_KEPT_MAX = 1 << 20
"""Hashes whose order may be kept, which takes half as much memory as they do."""


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """128-bit hashes of n record keys as two words.

    ``hi``, ``lo``: uint64[n].  Two keys are the same key if both words agree.
    """

    hi: UInt64Array
    lo: UInt64Array
    _order: list[Int64Array] = field(default_factory=list, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.hi)

    @classmethod
    def concat(cls, parts: Sequence[KeyHashes]) -> KeyHashes:
        """Return the hashes of several parts, of which there is at least one."""
        hi, lo = [part.hi for part in parts], [part.lo for part in parts]
        return cls(np.concatenate(hi), np.concatenate(lo))

    @classmethod
    def none(cls) -> KeyHashes:
        """Return the hashes of no keys."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))

    def take(self, rows: npt.NDArray[np.integer] | BoolArray) -> KeyHashes:
        """Return the hashes at ``rows`` (positions or a mask).  O(len(rows))."""
        return KeyHashes(self.hi[rows], self.lo[rows])

    def slice(self, first: int, count: int | None = None) -> KeyHashes:
        """Return ``count`` hashes from ``first`` on, or all of these.  O(1)."""
        stop = None if count is None else first + count
        return KeyHashes(self.hi[first:stop], self.lo[first:stop])

    def order(self) -> Int64Array:
        """Return the permutation that sorts by (hi, lo) -> int64[n].  O(n log n).

        >>> KeyHashes(np.array([2, 1], np.uint64), np.array([0, 9], np.uint64)).order().tolist()
        [1, 0]
        """
        order = stable_order(self.hi)
        hi = self.hi[order]
        if len(hi) > 1 and bool(np.any(hi[1:] == hi[:-1])):
            order = np.lexsort((self.lo, self.hi)).astype(np.int64)
        return order

    def kept_order(self) -> Int64Array:
        """Return :meth:`order`, found once: for those who look for the same keys in many places.
        That of very many is not kept.
        """
        if self._order:
            return self._order[0]
        order = self.order()
        if len(order) <= _ORDER_KEPT_MAX:
            self._order.append(order)
        return order


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pairs (key, group): the key may live in the group.

    ``key``: int64[p], positions in the keys that were asked for; ``group``: int64[p], positions in
    the groups. Pairs are unique; their order is not specified.  ``whole``: int64[w], groups in
    which every key may live; they are in no pair.
    """

    key: Int64Array
    group: Int64Array
    whole: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def pairs(self, count: int) -> tuple[Int64Array, Int64Array]:
        """Return all pairs of ``count`` keys: int64[p], int64[p], those of :attr:`whole` groups
        behind the others.  O(p + w count).
        """
        everywhere = np.tile(np.arange(count), len(self.whole))
        return np.append(self.key, everywhere), np.append(self.group, np.repeat(self.whole, count))


class KeyIndex(ABC):
    """Finds the file groups in which record keys may live.

    The table hands over the keys that a commit *inserts*, with the group of each; the index returns
    one *key part* of bytes for them.  A key stays in its group until it is deleted, so updates need
    no key part.  Stale entries (deleted keys) are allowed: the table confirms every pair exactly.
    """

    name: ClassVar[str]
    """Persisted name and format version, for example ``"bloom/1"``."""

    can_index_log_files: ClassVar[bool]
    """Whether inserts may go to log files.  False for an index whose Hudi counterpart sees base
    files only.
    """

    kept: ClassVar[str] = TABLE
    """Where its key parts are: TABLE, committed with the rows; or PROCESS, DISK: in memory or on
    the local disk of whoever looks for keys, made of the hashes that the table keeps of each file.
    Such an index gets no keys, but nulls, and must do with the hashes.
    """

    by_text: ClassVar[bool] = False
    """Whether it gets the record keys themselves, as text, where others get bytes in the order of
    the key columns.
    """

    def buckets(self, keys: pa.Array, partition: npt.NDArray[np.object_]) -> Int64Array | None:
        """Return the number of the bucket that each key belongs to -> int64[n], below 10^8; None: a
        new key may go anywhere.

        ``partition``: path of each key.

        The table then puts new keys of one partition and bucket into one group, whose file id
        begins with the number.
        """
        return None

    @abstractmethod
    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """Return the key part for n inserted keys.

        ``keys``: string or binary[n], whose bytes are in the order of the table's key columns (of
        one string column: the record keys); ``hashes``: of the record keys; ``group``: int64[n] in
        [0, groups), the group of each key.  Repeated keys are allowed (a key may live in several
        groups).
        """

    def build_of_groups(self, keys: Sequence[pa.Array], hashes: Sequence[KeyHashes]) -> bytes:
        """Return what :meth:`build` does for the keys of group 0, of group 1 and so on, at least
        one; ``keys``, ``hashes``: of each group.

        An index that needs no keys, or not all of them at once, may override this: millions of keys
        need not be brought together then.
        """
        number = np.repeat(np.arange(len(keys)), [len(one) for one in keys])
        words = (
            np.concatenate(word) for word in zip(*((one.hi, one.lo) for one in hashes), strict=True)
        )
        return self.build(pa.concat_arrays(keys), KeyHashes(*words), number, len(keys))

    def opened(self, key_part: bytes | memoryview) -> Any:
        """Return what :meth:`locate` and :meth:`locate_within` may be given in its place, as often
        as keys are looked for; by default the bytes.

        An index that remembers what it has read and verified overrides this.  Used by many threads.
        Raises ValueError for bytes that it did not write.
        """
        return key_part

    @abstractmethod
    def locate(self, key_part: Any, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """Return a superset of the pairs (key, group of the key part) for m keys, given as to
        :meth:`build`.

        ``key_part``: its bytes, as bytes or memoryview, or what :meth:`opened` made of them. Raises
        ValueError for bytes that it did not write; the table then takes all groups of the key part
        as candidates.
        """

    def locate_within(
        self,
        key_part: Any,
        keys: pa.Array,
        hashes: KeyHashes,
        key_place: Int64Array,
        group_place: Int64Array,
    ) -> Candidates:
        """Return what :meth:`locate` does, but no pair of a key and a group that are of different
        places (partitions).

        ``key_place``: int64[m], 0 or more; ``group_place``: int64[groups of the key part], -1 for a
        place of no key.  An index that compares keys with one group after the other should override
        it, and leave the groups of other places alone.  Raises ValueError as :meth:`locate`,
        IndexError where the key part has more groups than places were given for.
        """
        found = self.locate(key_part, keys, hashes)
        same = key_place[found.key] == group_place[found.group]
        return Candidates(found.key[same], found.group[same], found.whole)

    @abstractmethod
    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """Return one key part that answers as all ``key_parts`` together.

        ``groups[i]``: int64[groups of key part i], the new number in [0, total) of each old group,
        or -1 to forget it.
        """
