"""Statistics for optimizers: estimates within their bounds on every type, merged summaries equal to
a summary of all rows, detection of damage.
"""

import struct
import zlib
from collections import Counter
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import sketches, values
from indexes.sketches import RELATIVE_ERROR
from indexes.table_stats import (
    COMMON_KEY_BYTES_MAX,
    COMMON_MAX,
    ColumnSummary,
    estimate,
    merge,
    summarize,
)
from indexes.testing import ALL_TYPES, columns


def count_keys(column):
    """Count the keys in Python."""
    return Counter(key for key in values.encode(column).to_pylist() if key is not None)


def assert_holds(summary, column):
    """Assert every fact that a summary states about a column, except for the estimate."""
    counts = count_keys(column)
    assert summary.rows == len(column) and summary.nulls == len(column) - sum(counts.values())
    for common in summary.common:
        real = counts.pop(values.compare_key(common.value, column.type).data)
        assert common.count <= real <= common.count + common.error, common
    assert max(counts.values(), default=0) <= summary.rest
    assert summary.distinct_low <= summary.distinct <= summary.distinct_high
    listed = [common.count for common in summary.common]
    assert len(listed) <= COMMON_MAX and listed == sorted(listed, reverse=True)


def estimated(column):
    return estimate(summarize(column), column.type)


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
@given(data=st.data())
def test_small_columns_of_every_type_are_counted_exactly(type, data):
    column = data.draw(columns(type))
    summary = estimated(column)
    assert_holds(summary, column)
    if max(map(len, count_keys(column)), default=0) <= COMMON_KEY_BYTES_MAX:
        assert {summary.distinct, summary.distinct_low, summary.distinct_high} == {
            len(count_keys(column))
        }
        assert summary.rest == 0


@given(
    st.sampled_from(ALL_TYPES).flatmap(lambda type: st.lists(columns(type), min_size=1, max_size=6))
)
def test_merged_summaries_equal_a_summary_of_all_rows(parts):
    whole = pa.chunked_array(list(map(values.plain, parts)))
    first, *others = summaries = list(map(summarize, parts))
    for merged in (merge(summaries), merge([merge([first, *others[:1]]), *others[1:]])):
        summary = estimate(merged, whole.type)
        assert_holds(summary, whole)
        assert summary.distinct == estimated(whole).distinct


def columns_of_every_kind(distinct, rows):
    """Return columns of ``rows`` rows with about ``distinct`` values, a tenth of them nulls."""
    rng = np.random.default_rng(11)
    codes = pa.array(rng.integers(0, distinct, rows), mask=rng.random(rows) < 0.1)
    texts = codes.cast("string")
    return {
        "int64": codes,
        "int32": codes.cast("int32"),
        "double": pc.divide(codes.cast("float64"), 7.0),
        "string": texts,
        "long string": pc.binary_join_element_wise("https://example.com/items", texts, "/detail"),
        "timestamp": codes.cast(pa.timestamp("us")),
        "decimal": codes.cast(pa.decimal128(20, 0)),
        "dictionary": texts.dictionary_encode(),
        "binary": texts.cast("binary"),
    }


@pytest.mark.parametrize(
    ("distinct", "rows"), [(33, 5_000), (700, 20_000), (20_000, 90_000), (10**9, 90_000)]
)
def test_estimated_distinct_counts_of_every_kind_are_within_four_standard_errors(distinct, rows):
    for name, column in columns_of_every_kind(distinct, rows).items():
        plain = values.plain(column)
        summary = estimated(column)
        real = len(plain.drop_null().unique())
        assert abs(summary.distinct / real - 1) < 4 * RELATIVE_ERROR, name
        assert summary.rest >= 1 and summary.bytes == column.nbytes
        halves = merge([summarize(plain[: rows // 3]), summarize(plain[rows // 3 :])])
        assert estimate(halves, plain.type).distinct == summary.distinct, name
        assert distinct < 10**9 or len(summarize(column)) < 2048


def test_the_estimate_is_unbiased_and_its_interval_is_right_in_at_least_90_percent_of_cases():
    rng = np.random.default_rng(11)
    errors, inside = [], 0
    for size in (100, 1_000, 3_000, 10_000, 100_000):
        for _ in range(30):
            hashes = rng.integers(0, 2**64, size, dtype=np.uint64)
            guess = sketches.distinct(sketches.registers(hashes))
            errors.append(guess / size - 1)
            inside += abs(errors[-1]) <= 2 * RELATIVE_ERROR
    assert inside >= 0.9 * len(errors)
    assert abs(np.mean(errors)) < 0.01 and np.std(errors) < 1.2 * RELATIVE_ERROR


@pytest.mark.parametrize("type", [pa.int64(), pa.string()], ids=str)
def test_common_values_among_many_rare_ones_are_found_with_exact_counts(type):
    """A third of the rows have a few frequent values. The other values occur once or twice. The
    rows are sorted or shuffled.
    """
    rng = np.random.default_rng(11)
    heavy = np.repeat(np.arange(20), np.arange(20, 0, -1) * 150)
    light = rng.integers(10**6, 10**9, 120_000)
    for order in (np.sort, rng.permutation):
        summary = estimated(pa.array(order(np.concatenate([heavy, light]))).cast(type))
        listed = [(int(c.value), c.count, c.error) for c in summary.common]
        assert listed[:19] == [(v, (20 - v) * 150, 0) for v in range(19)]
        assert summary.rest < 200


def test_unique_and_long_values_are_not_listed_as_common():
    for rows in (1000, 100_000):
        summary = estimated(pa.array(np.arange(rows)))
        assert summary.common == [] and 1 <= summary.rest < 30
    summary = estimated(pa.array(["x" * (COMMON_KEY_BYTES_MAX + 1)] * 7 + ["y"] * 3))
    assert ([common.value for common in summary.common], summary.rest) == (["y"], 7)
    assert summary.distinct == 2


def test_merging_many_segments_keeps_error_bounds_for_dropped_values():
    rng = np.random.default_rng(11)
    weights = 1 / np.arange(1, 5001) ** 1.1
    segments = [pa.array(rng.choice(5000, 3000, p=weights / weights.sum())) for _ in range(12)]
    whole = pa.concat_arrays(segments)
    summary = estimate(merge(list(map(summarize, segments))), pa.int64())
    assert_holds(summary, whole)
    real = {value for value, _ in Counter(whole.to_pylist()).most_common(8)}
    assert {common.value for common in summary.common[:12]} >= real
    assert all(common.error <= summary.rest for common in summary.common)
    assert abs(summary.distinct / estimated(whole).distinct - 1) < 0.001


def test_all_nans_are_one_value_and_both_zeros_are_one_value():
    bits = np.arange(0x7FF8000000000001, 0x7FF8000000000101, dtype=np.uint64).view(np.float64)
    summary = estimated(pa.array(np.concatenate([bits, [0.0, -0.0, 0.0]])))
    assert summary.distinct == 2 and [common.count for common in summary.common] == [256, 3]
    others = np.random.default_rng(11).random(200_000)
    summary = estimated(pa.array(np.concatenate([np.tile(bits, 400), [0.0, -0.0] * 100, others])))
    assert [common.count for common in summary.common[:2]] == [256 * 400, 200]


def test_merging_no_summaries_gives_an_empty_summary():
    assert estimate(merge([]), pa.int64()) == ColumnSummary(0, 0, 0, 0, 0, [], 0, 0)
    nulls = estimate(merge([summarize(pa.nulls(5, "string")), merge([])]), pa.string())
    assert (nulls.rows, nulls.nulls, nulls.distinct) == (5, 5, 0)


def test_a_summary_of_short_values_has_at_most_two_kilobytes():
    light = np.random.default_rng(11).integers(0, 2**60, 100_000)
    skewed = pa.array(np.concatenate([np.repeat(np.arange(200), 50), light]))
    assert len(summarize(skewed)) < 2048
    assert len(summarize(pa.array([1, 2, 3]))) < 150


@pytest.mark.parametrize(
    "type", [pa.list_(pa.int64()), pa.struct({"a": "int64"}), pa.uint64(), pa.null()], ids=str
)
def test_a_type_without_order_is_refused(type):
    with pytest.raises(ValueError, match="do not support"):
        summarize(pa.array([], type))


@given(st.binary(max_size=100), st.integers(0, 10**6), st.integers(0, 10**6))
def test_damaged_bytes_and_bytes_of_another_type_raise_value_error(noise, cut, bit):
    valid = summarize(pa.array([1, 2, 2, None, 3]))
    flipped = bytearray(valid)
    flipped[bit % (8 * len(valid)) // 8] ^= 1 << bit % 8
    for damaged in (noise, valid[: cut % len(valid)], valid + b"\0", flipped, valid[:30] + noise):
        for ask in (lambda data: estimate(data, pa.int64()), lambda data: merge([valid, data])):
            with pytest.raises(ValueError):
                ask(bytes(damaged))
    with pytest.raises(ValueError):
        estimate(summarize(pa.array(["abc"])), pa.int64())


def test_a_compressed_summary_that_expands_too_much_is_refused():
    payload = zlib.compress(bytes(50_000_000))
    head = struct.pack("<4sBBHQQQQ", b"MTST", 1, 0, 0, 0, 0, 0, 0)
    for part in (payload, payload[:4000]):
        crc = zlib.crc32(part, zlib.crc32(head))
        with pytest.raises(ValueError):
            merge([head + struct.pack("<I", crc) + part])


def test_keys_that_differ_in_few_bits_have_different_hashes():
    """One byte differs in each of two words, at every pair of positions, which a sum of products
    could confuse.
    """
    keys = set()
    for first, second in combinations(range(24), 2):
        for value in range(0, 256, 17):
            key = bytearray(b"a" * 24)
            key[second] ^= value
            key[first] ^= 255 - value
            keys.add(bytes(key))
    hashes = sketches.hash_values(pa.array(sorted(keys), "binary"))
    assert len(np.unique(hashes)) == len(keys)
    assert abs(sketches.distinct(sketches.registers(hashes)) / len(keys) - 1) < 4 * RELATIVE_ERROR


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 8))
def test_no_unlisted_value_is_more_frequent_than_the_reported_rest(drawn, top):
    hashes = np.array(drawn, np.uint64) * np.uint64(7)
    frequent = sketches.frequent(hashes, top)
    counts = Counter(hashes.tolist())
    for row, count in zip(frequent.row.tolist(), frequent.count.tolist(), strict=True):
        assert counts.pop(int(hashes[row])) == count
    assert max(counts.values(), default=0) <= frequent.rest
