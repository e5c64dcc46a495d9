"""Column statistics: their content, and that values they exclude do not occur."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import values as order
from indexes.bounds import Bounds
from indexes.column_stats import (
    BOUND_BYTES_MAX,
    STATS_SCHEMA,
    ColumnStats,
    Stats,
    from_table,
    merge,
    pack,
    prune,
    prune_predicate,
    summarize,
    summarize_row_groups,
    to_batch,
    union,
    unpack,
)
from indexes.predicate import And, Leaf, Or, Unknown
from indexes.testing import SkippingIndexConformance, columns, predicates, scalar_types

INT, STRING = pa.int64(), pa.string()


class TestColumnStats(SkippingIndexConformance):
    index = ColumnStats()


@given(data=st.data())
def test_bounds_enclose_every_value_and_counts_add_up(data):
    column = data.draw(scalar_types().flatmap(columns))
    stats = summarize(column)
    stats.check()
    keys = [key for key in order.encode(column).to_pylist() if key is not None]
    assert (stats.values, stats.nulls) == (len(column), len(column) - len(keys))
    assert stats.nans == sum(isinstance(v, float) and math.isnan(v) for v in column.to_pylist())
    if keys:
        assert stats.min <= min(keys) and stats.min_exact == (stats.min == min(keys))
        assert stats.max is None or stats.max >= max(keys)
        assert stats.max_exact == (stats.max == max(keys))
    assert unpack(pack(stats), column.type) == stats


LONG = "x" * (BOUND_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([LONG], (LONG[:-1].encode(), False, LONG[:-2].encode() + b"y", False)),
        (["\U0010ffff" * 20], (b"\xf4\x8f\xbf\xbf" * 16, False, None, False)),
        (
            pa.DictionaryArray.from_arrays([1, 1, None], ["a", "b", "c", None]),
            (b"b", True, b"b", True),
        ),
    ],
    ids=["long text", "no text above", "unused entries of a dictionary"],
)
def test_bounds_are_truncated_and_are_those_of_values_that_occur(column, expected):
    stats = summarize(pa.array(column))
    assert (stats.min, stats.min_exact, stats.max, stats.max_exact) == expected


def test_a_type_without_order_has_counts_but_no_bounds():
    type = pa.list_(INT)
    stats = to_batch([summarize(pa.array(rows, type)) for rows in ([[1], None], [[1]])])
    assert prune(stats, Leaf("c", "is null"), type).tolist() == [True, False]
    assert not ColumnStats().supports(type)


def test_row_groups_that_do_not_add_up_are_refused():
    for wrong in ([2], [6], [-1, 6]):
        with pytest.raises(ValueError, match="row groups"):
            summarize_row_groups(pa.array([3, 1, None, 7, 5]), wrong)


UNBOUNDED = Stats(None, None, False, False, 1, 0, 2, 0)
ALL_NULL = Stats(None, None, False, False, 2, 0, 2, 0)
EMPTY = summarize(pa.array([], INT))


@pytest.mark.parametrize(
    ("type", "op", "value", "expected"),
    [
        (INT, "=", 1, [0, 1]),
        (INT, "in", (), [0]),
        (INT, "in", (1, 2, 3), [0, 1]),
        (INT, "not in", (1,), [0, 1]),
        (INT, "not in", (None,), [0]),
        (INT, "!=", 1, [0, 1]),
        (INT, "<", 1.5, [0, 1]),
        (INT, "is null", None, [0, 1, 2]),
        (INT, "is not null", None, [0, 1]),
        (STRING, "in", ("a", "b", "c"), [0, 1]),
        (STRING, "like", "a%", [0, 1]),
        (STRING, "not like", "a%", [0, 1]),
        (STRING, ">", "a", [0, 1]),
    ],
)
def test_segments_without_statistics_or_bounds_are_not_pruned(type, op, value, expected):
    stats = to_batch([None, UNBOUNDED, ALL_NULL, EMPTY])
    assert np.flatnonzero(prune(stats, Leaf("c", op, value), type)).tolist() == expected


def test_upper_bounds_without_a_count_of_nan_prove_nothing():
    zero = order.encode_scalar(0.0, pa.float64())
    stats_columns = [[zero], [zero], [True], [True], [0], [None], [1], [8]]
    stats = pa.RecordBatch.from_arrays(
        [pa.array(v, t) for v, t in zip(stats_columns, STATS_SCHEMA.types, strict=True)],
        schema=STATS_SCHEMA,
    )
    assert prune(stats, Leaf("c", ">", 1), pa.float64()).tolist() == [True]
    assert prune(stats, Leaf("c", "<", -1), pa.float64()).tolist() == [False]


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", 15, [1]),
        ("=", 15.5, []),
        ("<", 10, [0, 3]),
        ("<=", 10, [0, 1, 3]),
        ("<", 9.5, [0, 3]),
        (">", 20, [2]),
        (">", 10**30, []),
        ("<", 10**30, [0, 1, 2, 3]),
        ("in", (-5, 25, 99), [2]),
        ("in", (1, 11, 21), [0, 1, 2]),
        ("in", (9.5, 19.5), []),
        ("!=", 15, [0, 1, 2, 3]),
        ("is null", None, [3, 4]),
        ("<=>", None, [3, 4]),
        ("is not null", None, [0, 1, 2, 3]),
        ("=", None, []),
        ("not in", (7, 8), [0, 1, 2]),
        ("!=", 7, [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("type", [INT, pa.decimal128(9, 0)], ids=["words", "bytes"])
def test_bounds_exclude_values_outside_them(op, value, expected, type):
    lists = [[0, 9], [10, 19], [20, 29], [7, 7, None], [None], []]
    stats = to_batch([summarize(pa.array(rows, type)) for rows in lists])
    assert np.flatnonzero(prune(stats, Leaf("c", op, value), type)).tolist() == expected


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("starts with", "ab", [0, 1]),
        ("starts with", "b", [2]),
        ("starts with", "", [0, 1, 2]),
        ("like", "ab%", [0, 1]),
        ("like", "ad", []),
        ("like", "abzz", [1]),
        ("like", "%z", [0, 1, 2]),
        ("not like", "ab%", [1, 2]),
        ("not like", "a%", [2]),
        ("not like", "%", []),
        ("not like", "bb", [0, 1]),
        ("not like", "b_", [0, 1, 2]),
        ("like", "a\\%%", []),
    ],
)
def test_bounds_exclude_prefixes_outside_them(op, value, expected):
    stats = to_batch(
        [summarize(pa.array(rows)) for rows in (["aba", "abz"], ["aa", "ac"], ["bb", "bb"])]
    )
    assert np.flatnonzero(prune(stats, Leaf("c", op, value), STRING)).tolist() == expected


def test_a_literal_of_the_wrong_type_is_refused():
    stats = to_batch([summarize(pa.array([1]))])
    for op, value in (("=", "x"), ("in", ("x",)), ("starts with", "x"), ("like", "x%")):
        with pytest.raises(ValueError):
            prune(stats, Leaf("c", op, value), INT)


def test_verdicts_of_trees_are_combined_and_unknown_is_not_pruned():
    stats = to_batch([summarize(pa.array([0, 1])), summarize(pa.array([5, 6]))])
    low, high = Leaf("c", "<", 3), Leaf("c", ">", 3)
    for tree, expected in (
        (And((low, high)), [False, False]),
        (Or((low, high)), [True, True]),
        (And((low, Unknown("f"))), [True, False]),
        (Or((low, Unknown("f"))), [True, True]),
        (And(()), [True, True]),
        (Or(()), [False, False]),
    ):
        assert pruned(stats, INT, tree) == expected
    with pytest.raises(ValueError, match="instead of 3"):
        prune_predicate(lambda _: (stats, INT), low, 3)


@pytest.mark.parametrize(
    ("low", "high", "exact", "nulls", "nans"),
    [
        (b"b", b"a", False, 0, 0),
        (None, None, True, 0, 0),
        (None, None, False, 2, 0),
        (None, None, False, -1, 0),
        (b"x" * 65, None, False, 0, 0),
        (b"a", b"a", True, 1, 0),
        (None, None, False, 1, 1),
    ],
)
def test_contradictory_statistics_are_refused(low, high, exact, nulls, nans):
    with pytest.raises(ValueError):
        Stats(low, high, exact, exact, nulls, nans, 1, 0).check()


def test_invalid_summaries_and_summaries_of_another_type_are_refused():
    valid = ColumnStats().summarize(pa.array([1, 2]))
    for summary, type, why in (
        (valid[:1] + b"\x00" + valid[2:], INT, "exclude"),
        (valid, pa.bool_(), "bytes"),
        (b"\x09" + valid[1:], INT, "version 9"),
    ):
        with pytest.raises(ValueError, match=why):
            unpack(summary, type)


@given(data=st.data())
def test_merged_row_groups_equal_a_summary_of_all_rows(data):
    column = data.draw(scalar_types().flatmap(columns))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(column)), max_size=4)))
    rows = np.diff([0, *cuts, len(column)]).tolist()
    merged = merge(summarize_row_groups(column, rows))
    merged.check()
    assert replace(merged, size=0) == replace(summarize(column), size=0)


@st.composite
def _runs(draw):
    """Draw a type and runs of segment statistics of it. Some segments have no statistics or no
    counts of NaN. Return the type, the runs and the rows.
    """
    type = draw(scalar_types())
    parts = [draw(columns(type)) for _ in range(draw(st.integers(1, 6)))]
    summaries = [draw(st.sampled_from((summarize(part),) * 5 + (None,))) for part in parts]
    table = pa.table(to_batch(summaries))
    if draw(st.integers(0, 3)) == 0:
        nans = pa.array([draw(st.sampled_from((n, None))) for n in table["nans"].to_pylist()], INT)
        table = table.set_column(table.schema.get_field_index("nans"), "nans", nans)
    starts = sorted({0, *draw(st.sets(st.integers(0, len(parts) - 1)))})
    runs = [table[a:b] for a, b in pairwise([*starts, len(parts)])]
    return type, runs, pa.table({"c": pa.chunked_array(parts, type)})


def pruned(stats, type, predicate):
    return prune_predicate(lambda _: (stats, type), predicate, stats.num_rows).tolist()


def joined(runs):
    """Return the union of each run, and the statistics of all segments."""
    starts = np.cumsum([0, *map(len, runs)], dtype=np.int64)[:-1]
    table = pa.concat_tables(runs)
    return union(table, starts), table


@given(data=st.data())
def test_the_union_of_a_run_equals_the_merge_of_its_segments(data):
    _, runs, _ = data.draw(_runs())
    for row, part in zip(joined(runs)[0].to_pylist(), runs, strict=True):
        if part["values"].null_count:
            assert set(row.values()) == {None}, "a segment without statistics may have any value"
            continue
        filled = part.set_column(5, "nans", part["nans"].fill_null(0))
        merged = to_batch([merge(from_table(filled))]).to_pylist()[0]
        if part["nans"].null_count:
            merged["nans"] = None
        assert row == merged


@given(data=st.data())
def test_a_proof_for_a_stripe_holds_for_each_of_its_segments(data):
    type, runs, rows = data.draw(_runs())
    predicate = data.draw(predicates(rows.schema, rows))
    stripes, _ = joined(runs)
    for maybe, part in zip(pruned(stripes, type, predicate), runs, strict=True):
        assert maybe or not any(pruned(part, type, predicate))


@given(data=st.data())
def test_concatenated_bounds_give_the_verdicts_of_each_part(data):
    type, runs, rows = data.draw(_runs())
    predicate = data.draw(predicates(rows.schema, rows))
    bounds = Bounds.concat([Bounds.unknown(2), *(Bounds.read(part, type) for part in runs)])
    expected = [verdict for part in runs for verdict in pruned(part, type, predicate)]
    assert pruned(bounds, type, predicate)[2:] == expected
    assert pruned(Bounds.read(joined(runs)[1], type), type, predicate) == expected
    assert bounds.nbytes >= 4 * bounds.num_rows


def test_bounds_of_another_width_are_not_compared_as_words():
    lists = ([-5, 3], [None], [4, 2**62], [-(2**63)])
    stats = pa.table(to_batch([summarize(pa.array(values, INT)) for values in lists]))
    bounds = Bounds.read(stats, INT).min
    assert bounds.words is not None and bounds.absent is not None
    other_width = stats.set_column(
        0, "min", pa.array([b"short", None, b"12345678", None], "binary")
    )
    assert Bounds.read(other_width, INT).min.words is None
