"""The Bloom filter of a column: proofs on every type, the promised rate of false positives, pages,
mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexes import bloom, column_bloom, values
from indexes.base import BoolArray, InMemory, Summary
from indexes.column_bloom import LITERALS_MAX, PAGE_BLOCKS, ColumnBloom
from indexes.predicate import Leaf
from indexes.testing import SkippingIndexConformance, first_failure

INT = pa.int64()


class TestColumnBloom(SkippingIndexConformance):
    index = ColumnBloom()


@dataclass
class Counted:
    """A summary that counts the bytes that are read of it."""

    data: bytes
    ranges: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> memoryview:
        found = memoryview(self.data)[start:stop]
        self.ranges.append(len(found))
        return found

    def keep(self, make: Callable[[], Any]) -> Any:
        return make()


def prune(segments: Sequence[Any], op: str, value: object = None, type: Any = INT) -> list[bool]:
    index = ColumnBloom()
    summaries = [InMemory(index.summarize(pa.array(segment, type))) for segment in segments]
    return index.prune(summaries, Leaf("c", op, value), type).tolist()


def test_values_inside_the_bounds_that_do_not_occur_are_proven_absent():
    evens = [list(range(at, at + 2000, 2)) for at in range(0, 40_000, 2000)]
    for absent in (1, 777, 39_999):
        assert sum(prune(evens, "=", absent)) <= 2
    verdict = prune(evens, "in", (4, 30_000, 5))
    assert verdict[0] and verdict[15] and sum(verdict) <= 4


def test_nulls_are_known_exactly():
    segments = [[], [None], [1], [1, None]]
    assert prune(segments, "is null") == prune(segments, "<=>") == [False, True, False, True]
    assert prune(segments, "is not null") == [False, False, True, True]
    assert (
        prune(segments, "=")
        == prune(segments, "in", (None,))
        == prune(segments, "in", ())
        == [False] * 4
    )
    assert (
        prune(segments, "<=>", 1) == prune(segments, "in", (None, 1)) == [False, False, True, True]
    )


def test_a_literal_between_two_values_matches_nothing():
    assert prune([[1, 2]], "=", 1.5) == prune([[1, 2]], "in", (1.5, 10**30)) == [False]
    assert prune([[0.0], [float("nan")]], "=", -0.0, pa.float64()) == [True, False]
    assert prune([[0.0], [float("nan")]], "=", float("nan"), pa.float64()) == [False, True]


def test_a_literal_of_another_type_finds_the_value_that_it_equals():
    assert prune([[1, 2]], "=", 1.0) == prune([[1, 2]], "in", (Decimal("2.00"),)) == [True]
    assert (
        prune([[1.0]], "=", 1, pa.float32())
        == prune([[Decimal(1)]], "=", 1.0, pa.decimal128(9, 2))
        == [True]
    )


def test_a_null_entry_of_a_dictionary_is_a_null():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([7, None], INT))
    summary = InMemory(ColumnBloom().summarize(column))
    assert ColumnBloom().prune([summary], Leaf("c", "is null"), column.type).tolist() == [True]
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([7, None], INT))
    summary = InMemory(ColumnBloom().summarize(unused))
    assert ColumnBloom().prune([summary], Leaf("c", "is null"), column.type).tolist() == [False]


def test_tests_of_order_are_not_asked():
    index = ColumnBloom()
    assert [
        op
        for op in ("=", "<=>", "in", "is null", "is not null")
        if not index.can_test(Leaf("c", op, ()), INT)
    ] == []
    assert not any(index.can_test(Leaf("c", op, 1), INT) for op in ("<", "<=", ">", ">=", "!="))
    assert prune([[1]], "<", 0) == [True]


@pytest.mark.parametrize("fpp", [0.1, 0.01, 0.001])
def test_the_share_of_false_positives_is_the_promised_one(fpp):
    index = ColumnBloom(str(fpp))
    rng = np.random.default_rng(7)
    column = pa.array([f"value-{n}" for n in rng.permutation(20_000)])
    summaries = [
        InMemory(index.summarize(column.slice(start, 2000))) for start in range(0, 20_000, 2000)
    ]
    asked, passed = 0, 0
    for n in range(400):
        verdict = index.prune(summaries, Leaf("c", "=", f"absent-{n}"), column.type)
        asked, passed = asked + len(verdict), passed + int(verdict.sum())
    # Five standard deviations of a binomial count; below, the filter would be larger than it need
    # be.
    margin = 5 * (asked * fpp) ** 0.5
    assert asked * fpp / 2 - margin <= passed <= asked * fpp + margin
    bits = 8 * len(summaries[0]) / 2000
    assert bits < {0.1: 7, 0.01: 12, 0.001: 18}[fpp]


def test_one_literal_reads_the_header_and_one_page():
    column = pa.array(np.arange(200_000) * 2)
    summary = Counted(ColumnBloom().summarize(column))
    assert len(summary) > 200_000
    index = ColumnBloom()
    for number in range(50):
        assert index.prune([summary], Leaf("c", "=", number * 4000), INT).tolist() == [True]
        assert len(summary.ranges) <= 2 and sum(summary.ranges) < 9000
        summary.ranges.clear()
    assert index.prune(
        [summary], Leaf("c", "in", tuple(range(1, 100_000, 150)) + (8,)), INT
    ).tolist() == [True]


def test_every_value_of_a_large_filter_is_found_again():
    column = pa.array(np.arange(30_000) * 3)
    summary = InMemory(ColumnBloom().summarize(column))
    index = ColumnBloom()
    for start in range(0, 30_000, 37):
        assert index.prune([summary], Leaf("c", "=", start * 3), INT).tolist() == [True]
    absent = [
        int(index.prune([summary], Leaf("c", "=", 3 * n + 1), INT)[0]) for n in range(0, 30_000, 37)
    ]
    assert sum(absent) < len(absent) * 0.04


def test_more_literals_than_help_are_not_asked_but_segments_without_values_are_known():
    many = tuple(range(LITERALS_MAX + 1))
    assert prune([[-5], [None]], "in", many) == [True, False]
    assert prune([[-5]] * 200, "in", many[1:]).count(True) < 200


def test_repeated_values_do_not_enlarge_the_filter():
    index = ColumnBloom()
    assert index.summarize(pa.array([1, 2, 3])) == index.summarize(pa.array([3, 2, 2, 1] * 5000))
    floats = pa.array(
        np.frombuffer(
            np.arange(0x7FF8000000000001, 0x7FF8000000001000, dtype=np.uint64).tobytes(), np.float64
        )
    )
    assert index.summarize(floats) == index.summarize(pa.array([float("nan")]))


@pytest.mark.parametrize("fpp", ["0", "1", "-0.1", "nan", "x", ""])
def test_an_impossible_probability_is_refused(fpp):
    with pytest.raises(ValueError):
        ColumnBloom(fpp)


def test_every_flipped_bit_of_the_parts_that_are_read_is_noticed():
    good = ColumnBloom().summarize(pa.array([1, 2, 3]))
    for at in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ValueError, match="Bloom filter"):
            ColumnBloom().prune([InMemory(bytes(flipped))], Leaf("c", "=", 1), INT)


def test_pages_in_the_wrong_order_are_noticed():
    data = ColumnBloom().summarize(pa.array(np.arange(10_000)))
    stride = PAGE_BLOCKS * bloom.BLOCK_BYTES + 4
    swapped = InMemory(
        data[:16]
        + data[16 + stride : 16 + 2 * stride]
        + data[16 : 16 + stride]
        + data[16 + 2 * stride :]
    )
    with pytest.raises(ValueError, match="damaged"):
        ColumnBloom().prune([swapped], Leaf("c", "in", tuple(range(40))), INT)


class Wrong(ColumnBloom):
    """A filter with a mistake in how it is asked or made."""

    def __init__(
        self,
        read: Callable[[Leaf], Leaf] = lambda leaf: leaf,
        make: Callable[[Any], Any] = lambda v: v,
    ) -> None:
        super().__init__()
        self.read, self.make = read, make

    def summarize(self, values: Any) -> bytes:
        return super().summarize(self.make(values))

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: Any) -> BoolArray:
        return super().prune(summaries, self.read(leaf), type)


class NoForOrder(ColumnBloom):
    """Says NO to what it cannot test."""

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: Any) -> BoolArray:
        return super().prune(summaries, leaf, type) & self.can_test(leaf, type)


def first_literal(leaf: Leaf) -> Leaf:
    return (
        Leaf(leaf.column, "in", leaf.value[:1])
        if leaf.op == "in" and isinstance(leaf.value, tuple)
        else leaf
    )


def null_as_ordinary(leaf: Leaf) -> Leaf:
    return Leaf(leaf.column, "=") if leaf.op == "<=>" and leaf.value is None else leaf


def equal_for_unequal(leaf: Leaf) -> Leaf:
    return Leaf(leaf.column, "=", leaf.value) if leaf.op == "!=" else leaf


MUTANTS = {
    "first_literal": Wrong(read=first_literal),
    "null_as_ordinary": Wrong(read=null_as_ordinary),
    "equal_for_unequal": Wrong(read=equal_for_unequal),
    "forgets_the_last_row": Wrong(make=lambda column: column.slice(0, max(len(column) - 1, 0))),
    "drops_nulls": Wrong(make=lambda column: values.plain(column).drop_null()),
    "no_for_order": NoForOrder(),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_kills_this_mutant(name):
    class Suite(SkippingIndexConformance):
        index = MUTANTS[name]

    assert first_failure(Suite) is not None


def without_bits(monkeypatch):
    """Filters lose their last block's bits."""
    build = bloom.build
    monkeypatch.setattr(bloom, "build", lambda hashes, fpp: build(hashes, fpp)[:-4] + bytes(4))


def signed_zeros(monkeypatch):
    """-0.0 and 0.0 get keys of their own."""
    encode = values.encode

    def wrong(column):
        if not pa.types.is_float64(column.type):
            return encode(column)
        return pa.array(
            [
                str(v).encode() if v == 0 else k
                for v, k in zip(column.to_pylist(), encode(column).to_pylist(), strict=True)
            ]
        )

    monkeypatch.setattr(column_bloom.values, "encode", wrong)


def other_seed_for_literals(monkeypatch):
    """Literals are hashed with another seed than values."""
    hashes = column_bloom.hash_keys
    monkeypatch.setattr(
        column_bloom,
        "_literal_hashes",
        lambda leaf, type: hashes(pa.array([repr(leaf.value).encode()]), 1),
    )


@pytest.mark.parametrize("plant", [without_bits, signed_zeros, other_seed_for_literals])
def test_the_suite_kills_a_planted_mistake(monkeypatch, plant):
    plant(monkeypatch)
    assert first_failure(TestColumnBloom) is not None
