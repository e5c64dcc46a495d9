"""Conformance suite for key indexes.

Subclass it, set ``index``, and run pytest::

    class TestMine(KeyIndexConformance):
        index = MyKeyIndex()

The suite inserts random keys into random groups and compares every answer with a dictionary. Keys
include edge cases for ranges and hashes: empty keys, common prefixes longer than any bound, zero
bytes at the end, characters outside of Unicode's first plane.

hypothesis is a development dependency. Only the two conformance suites of ``indexes`` import it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from indexes import testing
from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex
from indexes.key_hash import hash_keys
from indexes.testing import generated

GROUPS = 5
"""Groups of every generated key part."""
HOSTILE_BYTES_MAX = 16 * 2**20
"""Memory limit of a lookup in a damaged key part of a few hundred bytes."""
LARGE_KEYS = 5000
"""Keys of the large key part, which spans several shards or blocks of any structure."""

_SEED = 7
_LONG = "p" * 70
_ODD_KEYS = (
    "",
    "\0",
    "a",
    "a\0",
    "ab",
    "b",
    "é",
    "\ud7ff",
    "\uffff",
    "\U0010ffff",
    _LONG,
    _LONG + "a",
    _LONG + "b",
    "\U0010ffff" * 16,
    "\U0010ffff" * 17,
    "12345678",
    "12345678\0",
    "123456789",
    "12345678abcdefgh",
)

Pairs = set[tuple[int, int]]
first_failure = testing.first_failure


@dataclass(frozen=True, slots=True)
class Inserts:
    """The inserts of a commit: n ``keys`` and the ``group`` of each.

    >>> Inserts(["id_1", "id_2"], [0, 3]).group
    [0, 3]
    """

    keys: list[str]
    group: list[int]


def keys() -> st.SearchStrategy[str]:
    """Return a strategy for record keys: edge cases, numbers and any text.

    >>> from hypothesis import find
    >>> find(keys(), lambda key: key.startswith("key-"))
    'key-000000000000'
    """
    return (
        st.sampled_from(_ODD_KEYS)
        | st.integers(0, 60).map("key-{:012d}".format)
        | st.text(max_size=40)
    )


@st.composite
def inserts(draw: st.DrawFn, max_size: int = 30) -> Inserts:
    """Draw inserts into GROUPS groups. A key may repeat, in the same group or in several.

    >>> from hypothesis import find
    >>> find(inserts(), lambda made: made.group == [0]).keys
    ['']
    """
    rows = draw(st.lists(st.tuples(keys(), st.integers(0, GROUPS - 1)), max_size=max_size))
    return Inserts([key for key, _ in rows], [group for _, group in rows])


def hashed(strings: Sequence[str], seed: int = _SEED) -> tuple[pa.Array, KeyHashes]:
    """Return ``strings`` as the arguments of a key index: the keys and their hashes.

    >>> keys, hashes = hashed(["id_1", "id_2"])
    >>> keys.to_pylist(), len(hashes)
    (['id_1', 'id_2'], 2)
    """
    array = pa.array(strings, pa.string())
    return array, hash_keys(array, seed)


def truth(inserted: Inserts, requested: Sequence[str]) -> Pairs:
    """Return the pairs (position in ``requested``, group) that an index must find.

    >>> sorted(truth(Inserts(["a", "b", "a"], [0, 1, 3]), ["a", "c"]))
    [(0, 0), (0, 3)]
    """
    where: dict[str, set[int]] = {}
    for key, group in zip(inserted.keys, inserted.group, strict=True):
        where.setdefault(key, set()).add(group)
    return {(at, group) for at, key in enumerate(requested) for group in where.get(key, ())}


class KeyIndexConformance:
    """Tests for every key index. Set ``index`` in a subclass whose name starts with Test.

    ``false_share_max`` is the largest allowed share of false candidates among the pairs of absent
    key and group, in the large key part.

    >>> from indexes.keys.simple import SimpleKeyIndex
    >>> class TestSimple(KeyIndexConformance):
    ...     index = SimpleKeyIndex()
    >>> TestSimple().test_the_name_ends_in_a_version()
    """

    index: ClassVar[KeyIndex]
    false_share_max: ClassVar[float] = 0.05

    @generated(60, inserted=inserts(), absent=st.lists(keys(), max_size=10))
    def test_locate_finds_every_inserted_key(self, inserted: Inserts, absent: list[str]) -> None:
        """Candidates are a superset of the truth, from bytes and from a view, without duplicate
        pairs.
        """
        requested = [*absent, *inserted.keys]
        key_part = self._build(inserted)
        assert self._locate(key_part, requested) >= truth(inserted, requested)
        assert self._locate(memoryview(key_part), requested) == self._locate(key_part, requested)

    def test_locate_finds_every_key_of_a_large_key_part(self) -> None:
        """Shuffled keys, some in two groups, are all found. Absent keys are rarely found."""
        inserted = _large()
        pairs = self._locate(self._build(inserted), inserted.keys)
        assert pairs >= truth(inserted, inserted.keys)
        absent = [f"absent-{number}" for number in range(LARGE_KEYS)] + [
            f"{key}x" for key in inserted.keys
        ]
        false = self._locate(self._build(inserted), absent)
        assert len(false) <= self.false_share_max * len(absent) * GROUPS

    @generated(60, inserted=inserts(), absent=st.lists(keys(), max_size=10))
    def test_keys_given_group_by_group_answer_as_all_together(
        self, inserted: Inserts, absent: list[str]
    ) -> None:
        """The candidates are the same, whether or not all groups have keys."""
        requested = [*absent, *inserted.keys]
        by_group = [
            [
                key
                for key, key_group in zip(inserted.keys, inserted.group, strict=True)
                if key_group == group
            ]
            for group in range(GROUPS)
        ]
        texts, hashes = zip(*map(hashed, by_group), strict=True)
        assert self._locate(self.index.build_of_groups(texts, hashes), requested) == self._locate(
            self._build(inserted), requested
        )

    @generated(60, inserted=inserts(), absent=st.lists(keys(), max_size=10), data=st.data())
    def test_locate_within_places_finds_every_key_of_its_place(
        self, inserted: Inserts, absent: list[str], data: st.DataObject
    ) -> None:
        """Keys are found in their partition. No pair crosses partitions."""
        requested = [*absent, *inserted.keys]
        key_places = data.draw(
            st.lists(st.integers(0, 2), min_size=len(requested), max_size=len(requested))
        )
        group_places = data.draw(st.lists(st.integers(-1, 2), min_size=GROUPS, max_size=GROUPS))
        self._check_within(inserted, requested, key_places, group_places)

    def test_locate_within_places_of_a_large_key_part(self) -> None:
        """Tests a group per partition, and several groups in a partition."""
        inserted = _large()
        numbers = list(range(len(inserted.keys)))
        for group_places in (list(range(GROUPS)), [0] * (GROUPS - 1) + [1], [-1] * GROUPS):
            self._check_within(
                inserted, inserted.keys, [number % GROUPS for number in numbers], group_places
            )

    def test_one_key_at_a_time_answers_as_all_together(self) -> None:
        """Single lookups return the pairs of the batch."""
        inserted = _large()
        key_part, requested = self._build(inserted), [*inserted.keys[:60], *_ODD_KEYS]
        single = {
            (at, group)
            for at, key in enumerate(requested)
            for _, group in self._locate(key_part, [key])
        }
        assert single == self._locate(key_part, requested)

    @generated(60, parts=st.lists(inserts(), max_size=4), data=st.data())
    def test_merge_answers_as_all_key_parts_renumbered(
        self, parts: list[Inserts], data: st.DataObject
    ) -> None:
        """Each key part has its own new group numbers. -1 drops a group, and two groups may be
        merged.
        """
        total = data.draw(st.integers(1, 8))
        numbers = [
            data.draw(st.lists(st.integers(-1, total - 1), min_size=GROUPS, max_size=GROUPS))
            for _ in parts
        ]
        requested = [key for part in parts for key in part.keys] + list(_ODD_KEYS)
        self._check_merge(parts, numbers, total, requested)

    def test_merge_of_large_key_parts_forgets_and_renumbers(self) -> None:
        """Merges two large key parts. Groups are moved, dropped and merged."""
        inserted = _large()
        half = LARGE_KEYS // 2
        parts = [
            Inserts(inserted.keys[:half], inserted.group[:half]),
            Inserts(inserted.keys[half:], inserted.group[half:]),
        ]
        self._check_merge(parts, [[4, 3, -1, 1, 0], [5, 5, 2, -1, 0]], 6, inserted.keys)

    @generated(30, inserted=inserts())
    def test_equal_inserts_give_equal_key_parts(self, inserted: Inserts) -> None:
        """Key parts and merged key parts depend only on their arguments."""
        key_part, numbers = self._build(inserted), np.arange(GROUPS, dtype=np.int64)
        assert key_part == self._build(inserted)
        merged = self.index.merge([key_part, key_part], [numbers, numbers], GROUPS)
        assert merged == self.index.merge([key_part, key_part], [numbers, numbers], GROUPS)

    def test_equal_large_inserts_give_equal_key_parts(self) -> None:
        """The same for a large key part."""
        assert self._build(_large()) == self._build(_large())

    @generated(80, inserted=inserts(), data=st.data())
    def test_hostile_bytes_raise_value_error_or_give_candidates(
        self, inserted: Inserts, data: st.DataObject
    ) -> None:
        """Foreign, truncated, extended and overwritten bytes raise no other exception."""
        key_part = self._build(inserted)
        at, junk = (
            data.draw(st.integers(0, len(key_part))),
            data.draw(st.binary(max_size=9) | st.just(b"\xff" * 8)),
        )
        for bad in (
            junk,
            key_part[:at],
            key_part + b"\0",
            key_part[:at] + junk,
            key_part[:at] + junk + key_part[at + len(junk) :],
        ):
            self._survives(bad, inserted)

    def test_huge_numbers_in_a_key_part_are_not_believed(self) -> None:
        """Overwriting any part of a small key part with 0xff or 0x7f never causes large
        allocations.
        """
        inserted = Inserts(list(_ODD_KEYS), [at % GROUPS for at in range(len(_ODD_KEYS))])
        key_part = self._build(inserted)
        tracemalloc.start()
        try:
            for at in range(0, min(len(key_part), 400), 4):
                for junk in (b"\xff" * 8, b"\xff\xff\xff\x7f"):
                    self._survives(key_part[:at] + junk + key_part[at + len(junk) :], inserted)
            assert tracemalloc.get_traced_memory()[1] <= HOSTILE_BYTES_MAX
        finally:
            tracemalloc.stop()

    def test_every_flipped_bit_is_found_or_harmless(self) -> None:
        """A key part with a flipped bit is rejected, or still finds every key."""
        inserted = Inserts(list(_ODD_KEYS[:6]), [at % GROUPS for at in range(6)])
        key_part = self._build(inserted)
        for bit in range(8 * len(key_part)):
            damaged = bytearray(key_part)
            damaged[bit // 8] ^= 1 << bit % 8
            try:
                pairs = self._locate(bytes(damaged), inserted.keys)
            except ValueError:
                continue
            assert pairs >= truth(inserted, inserted.keys), f"bit {bit % 8} of byte {bit // 8}"

    def test_nothing_in_nothing_out(self) -> None:
        """Tests zero inserted keys, zero requested keys, and zero merged key parts."""
        empty = self._build(Inserts([], []))
        merged = self.index.merge([], [], GROUPS)
        for key_part in (empty, merged):
            assert self._locate(key_part, []) == set()
            assert self._locate(key_part, ["a", "b"]) == set()
        assert self._locate(self._build(Inserts(["a"], [0])), []) == set()

    def test_the_name_ends_in_a_version(self) -> None:
        """The persisted name is ``name/<version>``."""
        stem, _, version = self.index.name.rpartition("/")
        assert stem and version.isdigit()

    def _build(self, inserted: Inserts) -> bytes:
        array, hashes = hashed(inserted.keys)
        return self.index.build(array, hashes, np.array(inserted.group, np.int64), GROUPS)

    def _locate(
        self, key_part: bytes | memoryview, requested: Sequence[str], groups: int = GROUPS
    ) -> Pairs:
        opened = self.index.opened(key_part)
        first, *repeated = [
            self._pairs(part, requested, groups) for part in (key_part, opened, opened)
        ]
        assert all(pairs == first for pairs in repeated), (
            "an opened key part and its bytes give different answers"
        )
        return first

    def _pairs(self, key_part: Any, requested: Sequence[str], groups: int) -> Pairs:
        candidates = self.index.locate(key_part, *hashed(requested))
        _check_candidates(candidates, len(requested), groups)
        return _pair_set(candidates, len(requested))

    def _check_within(
        self,
        inserted: Inserts,
        requested: list[str],
        key_places: list[int],
        group_places: list[int],
    ) -> None:
        places = np.array(key_places, np.int64), np.array(group_places, np.int64)
        candidates = self.index.locate_within(self._build(inserted), *hashed(requested), *places)
        _check_candidates(candidates, len(requested), GROUPS)
        pairs = set(zip(candidates.key.tolist(), candidates.group.tolist(), strict=True))
        assert all(key_places[key] == group_places[group] for key, group in pairs), (
            "a pair crosses partitions"
        )
        expected = {
            (key, group)
            for key, group in truth(inserted, requested)
            if key_places[key] == group_places[group]
        }
        assert _pair_set(candidates, len(requested)) >= expected

    def _survives(self, key_part: bytes, inserted: Inserts) -> None:
        """Look up keys in damaged bytes. Allows ValueError, or valid positions."""
        try:
            candidates = self.index.locate(key_part, *hashed(inserted.keys))
        except ValueError:
            return
        _check_candidates(candidates, len(inserted.keys), np.iinfo(np.int64).max)

    def _check_merge(
        self, parts: list[Inserts], numbers: list[list[int]], total: int, requested: list[str]
    ) -> None:
        key_parts = [self._build(part) for part in parts]
        renumber: list[Int64Array] = [np.array(new, np.int64) for new in numbers]
        pairs = self._locate(self.index.merge(key_parts, renumber, total), requested, total)
        expected: Pairs = set()
        for key_part, new in zip(key_parts, numbers, strict=True):
            expected |= {
                (key, new[group])
                for key, group in self._locate(key_part, requested)
                if new[group] >= 0
            }
        assert pairs == expected


def _large() -> Inserts:
    """LARGE_KEYS shuffled keys. Every tenth occurs a second time, in the next group."""
    rng = np.random.default_rng(11)
    numbers = rng.permutation(LARGE_KEYS)
    numbers[9::10] = numbers[8::10]
    group = rng.integers(0, GROUPS, LARGE_KEYS)
    group[9::10] = (group[8::10] + 1) % GROUPS
    return Inserts([f"key-{number:012d}" for number in numbers.tolist()], group.tolist())


def _pair_set(candidates: Candidates, keys: int) -> Pairs:
    key, group = candidates.pairs(keys)
    return set(zip(key.tolist(), group.tolist(), strict=True))


def _check_candidates(candidates: Candidates, keys: int, groups: int) -> None:
    assert candidates.key.dtype == candidates.group.dtype == np.int64
    assert candidates.key.shape == candidates.group.shape
    assert candidates.whole.dtype == np.int64
    assert all(0 <= group < groups for group in candidates.whole.tolist()), (
        "a whole group that does not exist"
    )
    assert set(candidates.whole.tolist()).isdisjoint(candidates.group.tolist()), (
        "a group is whole and in a pair"
    )
    assert all(0 <= key < keys for key in candidates.key.tolist()), "a key that was not requested"
    assert all(0 <= group < groups for group in candidates.group.tolist()), (
        "a group that does not exist"
    )
    pairs = list(zip(candidates.key.tolist(), candidates.group.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a duplicate pair"
