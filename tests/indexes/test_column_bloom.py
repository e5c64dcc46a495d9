"""The Bloom filter index of a column: its verdicts on every type, its false positive rate, its
pages.
"""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from recording import Recording

from indexes import bloom
from indexes.base import InMemory
from indexes.column_bloom import LITERALS_MAX, PAGE_BLOCKS, ColumnBloom
from indexes.predicate import Leaf
from indexes.testing import SkippingIndexConformance

INT = pa.int64()
INDEX = ColumnBloom()
NAN = float("nan")


class TestColumnBloom(SkippingIndexConformance):
    index = INDEX


def summarized(values, type=INT):
    return InMemory(INDEX.summarize(pa.array(values, type)))


def verdicts(summaries, op, value=None, type=INT):
    return INDEX.prune(summaries, Leaf("c", op, value), type).tolist()


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("is null", None, [0, 1, 0, 1]),
        ("<=>", None, [0, 1, 0, 1]),
        ("is not null", None, [0, 0, 1, 1]),
        ("=", None, [0, 0, 0, 0]),
        ("in", (None,), [0, 0, 0, 0]),
        ("in", (), [0, 0, 0, 0]),
        ("=", 1.5, [0, 0, 0, 0]),
        ("in", (1.5, 10**30), [0, 0, 0, 0]),
        ("<=>", 1, [0, 0, 1, 1]),
        ("in", (None, 1), [0, 0, 1, 1]),
        ("=", 1.0, [0, 0, 1, 1]),
        ("in", (Decimal("1.00"),), [0, 0, 1, 1]),
        ("in", tuple(range(5, LITERALS_MAX + 6)), [0, 0, 1, 1]),
        ("<", 0, [1, 1, 1, 1]),
    ],
)
def test_nulls_are_known_exactly_and_literals_are_compared_as_numbers(op, value, expected):
    summaries = list(map(summarized, ([], [None], [1], [1, None])))
    assert verdicts(summaries, op, value) == expected


@pytest.mark.parametrize(
    ("type", "literal", "expected"),
    [
        (pa.float64(), -0.0, [1, 0]),
        (pa.float64(), NAN, [0, 1]),
        (pa.float32(), 0, [1, 0]),
        (pa.decimal128(9, 2), 0.0, [1, 0]),
    ],
)
def test_both_zeros_are_equal_and_all_nans_are_equal(type, literal, expected):
    segments = [[0], [1]] if pa.types.is_decimal(type) else [[0.0], [NAN]]
    assert (
        verdicts([summarized(segment, type) for segment in segments], "=", literal, type)
        == expected
    )


def test_absent_values_within_the_bounds_are_proved_absent():
    evens = [summarized(range(at, at + 2000, 2)) for at in range(0, 40_000, 2000)]
    for absent in (1, 777, 39_999):
        assert sum(verdicts(evens, "=", absent)) <= 2
    verdict_by_file = verdicts(evens, "in", (4, 30_000, 5))
    assert verdict_by_file[0] and verdict_by_file[15] and sum(verdict_by_file) <= 4
    same_value = [summarized([-5])] * 200
    assert not all(verdicts(same_value, "in", tuple(range(1, LITERALS_MAX + 1))))


@pytest.mark.parametrize("codes", [[0, 1], [0, 0]], ids=["used", "unused"])
def test_a_null_entry_of_a_dictionary_counts_as_null_only_if_it_is_used(codes):
    column = pa.DictionaryArray.from_arrays(pa.array(codes, "int8"), pa.array([7, None], INT))
    summary = InMemory(INDEX.summarize(column))
    assert verdicts([summary], "is null", type=column.type) == [1 in codes]


def test_comparisons_of_order_are_not_tested():
    tested = {"=", "<=>", "in", "is null", "is not null"}
    others = {"<", "<=", ">", ">=", "!="}
    assert {op for op in tested | others if INDEX.can_test(Leaf("c", op, ()), INT)} == tested


@pytest.mark.parametrize(("fpp", "bits"), [(0.1, 7), (0.01, 12), (0.001, 18)])
def test_the_false_positive_rate_is_as_configured(fpp, bits):
    index = ColumnBloom(str(fpp))
    column = pa.array([f"value-{n}" for n in np.random.default_rng(7).permutation(20_000)])
    summaries = [InMemory(index.summarize(column[at : at + 2000])) for at in range(0, 20_000, 2000)]
    passed = sum(
        index.prune(summaries, Leaf("c", "=", f"absent-{n}"), column.type).sum() for n in range(400)
    )
    # Five standard deviations of a binomial count. With fewer false positives, the filter would be
    # larger than necessary.
    expected = 4000 * fpp
    margin = 5 * expected**0.5
    assert expected / 2 - margin <= passed <= expected + margin
    assert 8 * len(summaries[0]) / 2000 < bits


def test_one_literal_reads_the_header_and_one_page():
    summary = Recording(INDEX.summarize(pa.array(np.arange(200_000) * 2)))
    assert len(summary) > 200_000
    for number in range(50):
        assert verdicts([summary], "=", number * 4000) == [True]
        assert len(summary.reads) <= 2 and summary.bytes_read < 9000
        summary.reads.clear()
    assert verdicts([summary], "in", (*range(1, 100_000, 150), 8)) == [True]


def test_every_value_of_a_large_filter_is_found():
    summary = summarized(np.arange(30_000) * 3)
    numbers = range(0, 90_000, 111)
    assert all(verdicts([summary], "=", n) == [True] for n in numbers)
    assert sum(verdicts([summary], "=", n + 1)[0] for n in numbers) < len(numbers) * 0.04


def test_repeated_values_do_not_enlarge_the_filter():
    assert INDEX.summarize(pa.array([1, 2, 3])) == INDEX.summarize(pa.array([3, 2, 2, 1] * 5000))
    every_nan = np.arange(0x7FF8000000000001, 0x7FF8000000001000, dtype=np.uint64)
    assert INDEX.summarize(pa.array(every_nan.view(np.float64))) == INDEX.summarize(pa.array([NAN]))


@pytest.mark.parametrize("fpp", ["0", "1", "-0.1", "nan", "x", ""])
def test_an_invalid_probability_is_refused(fpp):
    with pytest.raises(ValueError):
        ColumnBloom(fpp)


def test_every_flipped_bit_of_a_small_filter_is_detected():
    summary = INDEX.summarize(pa.array([1, 2, 3]))
    for at in range(8 * len(summary)):
        flipped = bytearray(summary)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ValueError, match="Bloom filter"):
            verdicts([InMemory(bytes(flipped))], "=", 1)


def test_pages_in_the_wrong_order_are_detected():
    data = INDEX.summarize(pa.array(np.arange(10_000)))
    second = 16 + PAGE_BLOCKS * bloom.BLOCK_BYTES + 4
    third = 2 * second - 16
    swapped = data[:16] + data[second:third] + data[16:second] + data[third:]
    with pytest.raises(ValueError, match="damaged"):
        verdicts([InMemory(swapped)], "in", tuple(range(40)))
