"""Statistics for optimizers: estimates within their bounds on every type, merging is summarizing
all, damage is noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import sketches, table_stats, values
from indexes.sketches import REGISTERS, RELATIVE_ERROR
from indexes.table_stats import (
    COMMON_KEY_BYTES_MAX,
    COMMON_MAX,
    ColumnSummary,
    estimate,
    merge,
    summarize,
)
from indexes.testing import ALL_TYPES, columns


def truth(column: Any) -> Counter[bytes]:
    """Count the keys in Python."""
    return Counter(key for key in values.encode(column).to_pylist() if key is not None)


def assert_holds(found: ColumnSummary, column: Any) -> None:
    """Everything that a summary claims about a column, but for the estimate, is so."""
    counts = truth(column)
    assert found.rows == len(column) and found.nulls == len(column) - sum(counts.values())
    for common in found.common:
        real = counts.pop(values.compare_key(common.value, column.type).data)
        assert common.count <= real <= common.count + common.error, common
    assert max(counts.values(), default=0) <= found.rest
    assert found.distinct_low <= found.distinct <= found.distinct_high
    assert len(found.common) <= COMMON_MAX
    assert [common.count for common in found.common] == sorted(
        (common.count for common in found.common), reverse=True
    )


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
@given(data=st.data())
def test_small_columns_of_every_type_are_counted_exactly(type, data):
    column = data.draw(columns(type))
    found = estimate(summarize(column), type)
    assert_holds(found, column)
    if max((len(key) for key in truth(column)), default=0) <= COMMON_KEY_BYTES_MAX:
        assert (
            found.distinct == found.distinct_low == found.distinct_high == len(truth(column))
            and found.rest == 0
        )


@given(
    st.sampled_from(ALL_TYPES).flatmap(lambda type: st.lists(columns(type), min_size=1, max_size=6))
)
def test_merging_is_summarizing_everything(parts):
    whole = (
        pa.chunked_array(parts)
        if not pa.types.is_dictionary(parts[0].type)
        else pa.chunked_array([values.plain(p) for p in parts])
    )
    type = whole.type
    found = estimate(merge([summarize(part) for part in parts]), type)
    assert_holds(found, values.plain(whole))
    assert found.distinct == estimate(summarize(values.plain(whole)), type).distinct
    together = merge([merge([summarize(part) for part in parts[:2]]), *map(summarize, parts[2:])])
    assert_holds(estimate(together, type), values.plain(whole))


def many(distinct: int, rows: int) -> dict[str, Any]:
    """Return columns of ``rows`` rows with about ``distinct`` values, a tenth of them nulls."""
    rng = np.random.default_rng(11)
    codes = pa.array(rng.integers(0, distinct, rows), mask=rng.random(rows) < 0.1)
    return {
        "int64": codes,
        "int32": codes.cast(pa.int32()),
        "double": pa.array(
            codes.to_numpy(zero_copy_only=False) / 7, mask=np.asarray(codes.is_null())
        ),
        "string": codes.cast(pa.string()),
        "long string": pa.array(
            [
                None if c is None else f"https://example.com/items/{c}/detail"
                for c in codes.to_pylist()
            ]
        ),
        "timestamp": codes.cast(pa.timestamp("us")),
        "decimal": codes.cast(pa.decimal128(20, 0)),
        "dictionary": codes.cast(pa.string()).dictionary_encode(),
        "binary": codes.cast(pa.string()).cast(pa.binary()),
    }


@pytest.mark.parametrize(
    ("distinct", "rows"), [(33, 5_000), (700, 20_000), (20_000, 90_000), (10**9, 90_000)]
)
def test_distinct_counts_are_within_four_standard_errors_on_every_kind(distinct, rows):
    for name, column in many(distinct, rows).items():
        plain = values.plain(column)
        real = len(plain.drop_null().unique())
        found = estimate(summarize(column), column.type)
        assert abs(found.distinct / real - 1) < 4 * RELATIVE_ERROR, name
        assert found.rest >= 1 and found.bytes == column.nbytes
        halves = merge([summarize(plain.slice(0, rows // 3)), summarize(plain.slice(rows // 3))])
        assert estimate(halves, plain.type).distinct == found.distinct, name


def test_the_interval_holds_in_about_95_of_100_cases_and_there_is_no_bias():
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


@pytest.mark.parametrize("kind", ["int", "text"])
def test_common_values_among_many_are_found_with_exact_counts(kind):
    """A third of the rows are a few heavy values; the rest occur once or twice; the rows are sorted
    or shuffled.
    """
    rng = np.random.default_rng(11)
    heavy = np.repeat(np.arange(20), np.arange(20, 0, -1) * 150)
    light = rng.integers(10**6, 10**9, 120_000)
    for order in (np.sort, rng.permutation):
        column = pa.array(order(np.concatenate([heavy, light])))
        column = column.cast(pa.string()) if kind == "text" else column
        found = estimate(summarize(column), column.type)
        assert [(int(c.value), c.count, c.error) for c in found.common][:19] == [
            (v, (20 - v) * 150, 0) for v in range(19)
        ]
        assert found.rest < 200


def test_unique_values_are_not_called_common():
    found = estimate(summarize(pa.array(np.arange(100_000))), pa.int64())
    assert found.common == [] and 1 <= found.rest < 30
    assert estimate(summarize(pa.array(np.arange(1000))), pa.int64()).common == []


def test_merging_many_segments_keeps_bounds_of_what_was_dropped():
    rng = np.random.default_rng(11)
    weights = 1 / np.arange(1, 5001) ** 1.1
    segments = [pa.array(rng.choice(5000, 3000, p=weights / weights.sum())) for _ in range(12)]
    whole = pa.concat_arrays(segments)
    found = estimate(merge([summarize(segment) for segment in segments]), pa.int64())
    assert_holds(found, whole)
    real = [value for value, _ in Counter(whole.to_pylist()).most_common(10)]
    assert {common.value for common in found.common[:12]} >= set(real[:8])
    assert all(common.error <= found.rest for common in found.common)
    at_once = estimate(summarize(whole), pa.int64())
    assert abs(found.distinct / at_once.distinct - 1) < 0.001


def test_long_values_are_counted_but_not_listed():
    column = pa.array(["x" * (COMMON_KEY_BYTES_MAX + 1)] * 7 + ["y"] * 3)
    found = estimate(summarize(column), column.type)
    assert [common.value for common in found.common] == ["y"] and found.rest == 7
    assert found.distinct == 2


def test_nan_is_one_value_and_both_zeros_are_one():
    rng = np.random.default_rng(11)
    bits = np.arange(0x7FF8000000000001, 0x7FF8000000000101, dtype=np.uint64).view(np.float64)
    found = estimate(summarize(pa.array(np.concatenate([bits, [0.0, -0.0, 0.0]]))), pa.float64())
    assert found.distinct == 2 and [common.count for common in found.common] == [256, 3]
    large = np.concatenate([np.tile(bits, 400), [0.0, -0.0] * 100, rng.random(200_000)])
    found = estimate(summarize(pa.array(large)), pa.float64())
    assert [common.count for common in found.common[:2]] == [256 * 400, 200]


def test_nothing_merges_to_nothing():
    empty = estimate(merge([]), pa.int64())
    assert empty == ColumnSummary(0, 0, 0, 0, 0, [], 0, 0)
    nulls = estimate(merge([summarize(pa.nulls(5, pa.string())), merge([])]), pa.string())
    assert (nulls.rows, nulls.nulls, nulls.distinct) == (5, 5, 0)


def test_a_summary_has_at_most_two_kilobytes_of_short_values():
    rng = np.random.default_rng(11)
    for column in many(10**9, 90_000).values():
        assert len(summarize(column)) < 2048
    skewed = pa.array(
        np.concatenate([np.repeat(np.arange(200), 50), rng.integers(0, 2**60, 100_000)])
    )
    assert len(summarize(skewed)) < 2048
    assert len(summarize(pa.array([1, 2, 3]))) < 150


@pytest.mark.parametrize(
    "type", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.uint64(), pa.null()], ids=str
)
def test_a_type_without_order_is_refused(type):
    with pytest.raises(ValueError, match="no statistics"):
        summarize(pa.array([], type))


@given(st.binary(max_size=100), st.integers(0, 10**6), st.integers(0, 10**6))
def test_damaged_bytes_raise_value_error(noise, cut, bit):
    good = summarize(pa.array([1, 2, 2, None, 3]))
    flipped = bytearray(good)
    flipped[bit % (8 * len(good)) // 8] ^= 1 << bit % 8
    for damaged in (
        noise,
        good[: cut % len(good)],
        good + b"\0",
        bytes(flipped),
        good[:30] + noise,
    ):
        for ask in (lambda data: estimate(data, pa.int64()), lambda data: merge([good, data])):
            with pytest.raises(ValueError):
                ask(damaged)


def test_a_summary_of_another_type_raises_value_error():
    with pytest.raises(ValueError):
        estimate(summarize(pa.array(["abc"])), pa.int64())


def test_a_bomb_is_not_inflated():
    payload = zlib.compress(bytes(50_000_000))
    for size in (len(payload), 4000):
        head = struct.pack("<4sBBHQQQQ", b"MTST", 1, 0, 0, 0, 0, 0, 0)
        bomb = (
            head + struct.pack("<I", zlib.crc32(payload[:size], zlib.crc32(head))) + payload[:size]
        )
        with pytest.raises(ValueError):
            merge([bomb])


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=500, max_size=530), max_size=20))
def test_equal_keys_have_equal_hashes_whoever_their_neighbours_are(keys):
    together = sketches.hash_values(pa.array(keys, pa.binary()))
    alone = [sketches.hash_values(pa.array([key], pa.binary()))[0] for key in keys]
    assert together.tolist() == [int(one) for one in alone]
    assert len(set(together.tolist())) == len(set(keys))


def test_keys_that_differ_in_few_bits_have_different_hashes():
    """One byte in each of two words, at every pair of places: what a sum of products could
    confuse.
    """
    keys = set()
    for first in range(24):
        for second in range(first):
            for value in range(0, 256, 17):
                key = bytearray(b"a" * 24)
                key[first] ^= value
                key[second] ^= 255 - value
                keys.add(bytes(key))
    hashes = sketches.hash_values(pa.array(sorted(keys), pa.binary()))
    assert len(np.unique(hashes)) == len(keys)
    assert abs(sketches.distinct(sketches.registers(hashes)) / len(keys) - 1) < 4 * RELATIVE_ERROR


def test_registers_are_those_of_the_definition():
    rng = np.random.default_rng(11)
    hashes = rng.integers(0, 2**64, 40_000, dtype=np.uint64)
    expected = [0] * REGISTERS
    for word in [*hashes.tolist(), 0, 2**64 - 1]:
        upper = word >> sketches.REGISTER_BITS
        rank = min(sketches.RANK_MAX, sketches.RANK_MAX + 1 - upper.bit_length())
        expected[word % REGISTERS] = max(expected[word % REGISTERS], rank)
    assert (
        sketches.registers(np.append(hashes, np.array([0, 2**64 - 1], np.uint64))).tolist()
        == expected
    )


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 8))
def test_no_value_is_more_frequent_than_the_rest(drawn, top):
    hashes = np.array(drawn, np.uint64) * np.uint64(7)
    found = sketches.frequent(hashes, top)
    counts = Counter(hashes.tolist())
    for row, count in zip(found.row.tolist(), found.count.tolist(), strict=True):
        assert counts.pop(int(hashes[row])) == count
    assert max(counts.values(), default=0) <= found.rest


def test_wrong_sketches_are_noticed(monkeypatch):
    """The bounds are worth something only if mistakes break them."""
    rng = np.random.default_rng(11)
    heavy = np.concatenate([np.repeat(np.arange(50), 400), rng.integers(10**6, 10**9, 100_000)])
    column = pa.array(rng.permutation(heavy))
    right = sketches.frequent
    monkeypatch.setattr(
        table_stats.sketches,
        "frequent",
        lambda h, top: sketches.Frequent(*(right(h, top).row, right(h, top).count), rest=1),
    )
    with pytest.raises(AssertionError):
        assert_holds(estimate(summarize(column), pa.int64()), column)
