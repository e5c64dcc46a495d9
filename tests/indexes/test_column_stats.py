"""Column statistics: what they hold, and that what they rule out is not there."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
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
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, matches
from indexes.testing import SkippingIndexConformance, column_of, columns, predicates, scalar_types


class TestColumnStats(SkippingIndexConformance):
    index = ColumnStats()


@given(data=st.data())
def test_bounds_enclose_every_value_and_counts_add_up(data: st.DataObject) -> None:
    column = data.draw(scalar_types().flatmap(columns))
    stats = summarize(column)
    stats.check()
    keys = [key for key in order.encode(column).to_pylist() if key is not None]
    assert (stats.values, stats.nulls) == (len(column), len(column) - len(keys))
    assert stats.nans == sum(isinstance(v, float) and math.isnan(v) for v in column.to_pylist())
    if keys:
        assert (
            stats.min is not None
            and stats.min <= min(keys)
            and stats.min_exact == (stats.min == min(keys))
        )
        assert stats.max is None or stats.max >= max(keys)
        assert stats.max_exact == (stats.max == max(keys))
    assert unpack(pack(stats), column.type) == stats


def test_nan_is_the_upper_bound_and_not_the_lower_one() -> None:
    nan = order.compare_key(math.nan, pa.float64()).data
    stats = summarize(pa.array([1.0, math.nan, None]))
    assert (stats.min, stats.max, stats.nulls, stats.nans) == (
        order.encode_scalar(1.0, pa.float64()),
        nan,
        1,
        1,
    )
    assert summarize(pa.array([math.nan])).min == nan


def test_long_strings_have_bounds_that_are_not_exact() -> None:
    text = "x" * (BOUND_BYTES_MAX + 1)
    stats = summarize(pa.array([text]))
    assert stats.min == text[:BOUND_BYTES_MAX].encode() and not stats.min_exact
    assert stats.max == text[: BOUND_BYTES_MAX - 1].encode() + b"y" and not stats.max_exact
    assert summarize(pa.array(["\U0010ffff" * 20])).max is None


def test_a_type_without_an_order_has_counts_but_no_bounds() -> None:
    type = pa.list_(pa.int64())
    stats = to_batch([summarize(pa.array([[1], None], type)), summarize(pa.array([[1]], type))])
    assert prune(stats, Leaf("c", "is null"), type).tolist() == [True, False]
    assert not ColumnStats().supports(type)


def test_an_unused_dictionary_entry_is_not_a_bound() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1, None]), pa.array(["a", "b", "c", None]))
    stats = summarize(column)
    assert (stats.min, stats.max, stats.nulls) == (b"b", b"b", 1)


def test_row_groups_are_the_statistics_of_their_rows() -> None:
    column = pa.array([3, 1, None, 7, 5])
    row_groups = summarize_row_groups(column, [2, 0, 3])
    assert [row_group.values for row_group in row_groups] == [2, 0, 3]
    assert row_groups[0] == summarize(column.slice(0, 2)) and row_groups[2] == summarize(
        column.slice(2)
    )
    for wrong in ([2], [6], [-1, 6]):
        with pytest.raises(ValueError, match="row groups"):
            summarize_row_groups(column, wrong)


def test_a_segment_that_is_not_covered_is_maybe_for_everything() -> None:
    stats = to_batch([None, summarize(pa.array([], pa.int64()))])
    for leaf in (
        Leaf("c", "=", 1),
        Leaf("c", "is null"),
        Leaf("c", "in", ()),
        Leaf("c", "not in", (None,)),
    ):
        assert prune(stats, leaf, pa.int64()).tolist() == [True, False]


def test_a_segment_without_known_bounds_is_maybe_where_it_has_values() -> None:
    unbounded = Stats(None, None, False, False, 1, 0, 2, 0)
    all_null = Stats(None, None, False, False, 2, 0, 2, 0)
    stats = to_batch([unbounded, all_null])
    for type, tests in (
        (pa.int64(), [("=", 1), ("in", (1, 2, 3)), ("not in", (1,)), ("!=", 1), ("<", 1.5)]),
        (pa.string(), [("in", ("a", "b", "c")), ("like", "a%"), ("not like", "a%"), (">", "a")]),
    ):
        for op, value in tests:
            assert prune(stats, Leaf("c", op, value), type).tolist() == [True, False], op
    assert prune(stats, Leaf("c", "is not null"), pa.int64()).tolist() == [True, False]


def test_upper_bounds_from_someone_who_did_not_count_nan_prove_nothing() -> None:
    zero = order.encode_scalar(0.0, pa.float64())
    row = [[zero], [zero], [True], [True], [0], [None], [1], [8]]
    stats = pa.RecordBatch.from_arrays(
        [pa.array(v, t) for v, t in zip(row, STATS_SCHEMA.types, strict=True)], schema=STATS_SCHEMA
    )
    assert prune(stats, Leaf("c", ">", 1), pa.float64()).tolist() == [True]
    assert prune(stats, Leaf("c", "<", -1), pa.float64()).tolist() == [False]


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", 15, [1]),
        ("=", 15.5, []),
        ("<", 10, [0]),
        ("<=", 10, [0, 1]),
        ("<", 9.5, [0]),
        (">", 20, [2]),
        (">", 10**30, []),
        ("<", 10**30, [0, 1, 2]),
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
def test_what_bounds_can_rule_out_is_ruled_out(op: str, value: object, expected: list[int]) -> None:
    lists = [[0, 9], [10, 19], [20, 29], [7, 7, None], [None], []]
    stats = to_batch([summarize(pa.array(rows, pa.int32())) for rows in lists])
    expected = sorted({*expected, *([3] if value == 10**30 and op == "<" else [])})
    verdict = prune(stats, Leaf("c", op, value), pa.int32())
    holds = [at for at, maybe in enumerate(verdict) if maybe]
    assert [at for at in holds if at != 3 or at in expected] == expected


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
def test_prefixes_rule_out_what_lies_outside_them(op: str, value: str, expected: list[int]) -> None:
    stats = to_batch(
        [summarize(pa.array(rows)) for rows in (["aba", "abz"], ["aa", "ac"], ["bb", "bb"])]
    )
    assert np.flatnonzero(prune(stats, Leaf("c", op, value), pa.string())).tolist() == expected


def test_a_literal_of_the_wrong_kind_is_refused() -> None:
    stats = to_batch([summarize(pa.array([1]))])
    for op, value in (("=", "x"), ("in", ("x",)), ("starts with", "x"), ("like", "x%")):
        with pytest.raises(ValueError):
            prune(stats, Leaf("c", op, value), pa.int64())


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_tree_never_rules_out_a_segment_with_a_match(data: st.DataObject) -> None:
    types = {"a": data.draw(scalar_types()), "b": data.draw(scalar_types())}
    rows = {name: data.draw(columns(type)).to_pylist() for name, type in types.items()}
    table = pa.table(
        {name: column_of([*rows[name], *[None] * 12][:12], type) for name, type in types.items()}
    )
    tree = data.draw(predicates(table.schema, table))
    row_groups = data.draw(st.sampled_from([[12], [6, 6], [1] * 12, [0, 5, 7]]))
    known = {name: to_batch(summarize_row_groups(table.column(name), row_groups)) for name in types}
    covered = data.draw(st.sets(st.sampled_from(["a", "b"])))
    verdict = prune_predicate(
        lambda n: (known[n], types[n]) if n in covered else None, tree, len(row_groups)
    )
    mask = matches(tree, table).to_numpy()
    for part, maybe in zip(np.split(mask, np.cumsum(row_groups)[:-1]), verdict, strict=True):
        assert maybe or not part.any()


def test_trees_combine_verdicts_and_unknown_is_maybe() -> None:
    stats = to_batch([summarize(pa.array([0, 1])), summarize(pa.array([5, 6]))])
    low, high = Leaf("c", "<", 3), Leaf("c", ">", 3)
    cases: list[tuple[Predicate, list[bool]]] = [
        (And((low, high)), [False, False]),
        (Or((low, high)), [True, True]),
        (And((low, Unknown("f"))), [True, False]),
        (Or((low, Unknown("f"))), [True, True]),
        (And(()), [True, True]),
        (Or(()), [False, False]),
    ]
    for tree, expected in cases:
        assert prune_predicate(lambda _: (stats, pa.int64()), tree, 2).tolist() == expected
    with pytest.raises(ValueError, match="instead of 3"):
        prune_predicate(lambda _: (stats, pa.int64()), low, 3)


def test_a_table_of_chunks_prunes_as_a_batch_does() -> None:
    batch = to_batch([summarize(pa.array([0, 1])), summarize(pa.array([5, 6])), None])
    table = pa.concat_tables([pa.table(batch.slice(0, 1)), pa.table(batch.slice(1))])
    for leaf in (Leaf("c", ">", 3), Leaf("c", "in", (5, 6, 7)), Leaf("c", "not in", (5,))):
        assert prune(table, leaf, pa.int64()).tolist() == prune(batch, leaf, pa.int64()).tolist()


@pytest.mark.parametrize(
    "stats",
    [
        Stats(b"b", b"a", False, False, 0, 0, 1, 0),
        Stats(None, None, True, False, 0, 0, 1, 0),
        Stats(None, None, False, False, 2, 0, 1, 0),
        Stats(None, None, False, False, -1, 0, 1, 0),
        Stats(b"x" * 65, None, False, False, 0, 0, 1, 0),
        Stats(b"a", b"a", True, True, 1, 0, 1, 0),
        Stats(None, None, False, False, 1, 1, 1, 0),
    ],
)
def test_statistics_that_contradict_themselves_are_refused(stats: Stats) -> None:
    with pytest.raises(ValueError):
        stats.check()


def test_summaries_with_denied_bounds_or_of_another_type_are_refused() -> None:
    good = ColumnStats().summarize(pa.array([1, 2]))
    with pytest.raises(ValueError, match="deny"):
        unpack(good[:1] + b"\x00" + good[2:], pa.int64())
    with pytest.raises(ValueError, match="bytes"):
        unpack(good, pa.bool_())
    with pytest.raises(ValueError, match="version 9"):
        unpack(b"\x09" + good[1:], pa.int64())


@given(data=st.data())
def test_merged_row_groups_say_what_a_summary_of_all_rows_says(data: st.DataObject) -> None:
    column = data.draw(scalar_types().flatmap(columns))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(column)), max_size=4)))
    rows = [end - start for start, end in zip([0, *cuts], [*cuts, len(column)], strict=True)]
    merged = merge(summarize_row_groups(column, rows))
    merged.check()
    assert replace(merged, size=0) == replace(summarize(column), size=0)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[pa.DataType, pa.Table, pa.Table, np.ndarray]:
    """Draw a type, statistics of some segments of it, a few not covered or without counts of NaN,
    rows, and run starts.
    """
    type = draw(scalar_types())
    parts = [draw(columns(type)) for _ in range(draw(st.integers(1, 6)))]
    known: list[Stats | None] = [
        draw(st.sampled_from((summarize(part),) * 5 + (None,))) for part in parts
    ]
    table = pa.table(to_batch(known))
    if draw(st.integers(0, 3)) == 0:
        nans = pa.array(
            [draw(st.sampled_from((n, None))) for n in table["nans"].to_pylist()], pa.int64()
        )
        table = table.set_column(table.schema.get_field_index("nans"), "nans", nans)
    starts = sorted({0, *draw(st.sets(st.integers(0, len(parts) - 1)))})
    return type, table, pa.table({"c": pa.chunked_array(parts, type)}), np.array(starts, np.int64)


@given(data=st.data())
def test_the_union_of_runs_is_what_merging_their_segments_gives(data: st.DataObject) -> None:
    _, table, _, starts = data.draw(_runs())
    found = union(table, starts).to_pylist()
    for row, start, stop in zip(
        found, starts.tolist(), [*starts[1:].tolist(), len(table)], strict=True
    ):
        part = table.slice(start, stop - start)
        if part["values"].null_count:
            assert set(row.values()) == {None}, "a segment that is not covered may hold anything"
            continue
        uncounted = part["nans"].null_count > 0
        filled = part.set_column(5, "nans", part["nans"].fill_null(0))
        merged = to_batch([merge(from_table(filled))]).to_pylist()[0]
        assert row == merged | ({"nans": None} if uncounted else {})


@given(data=st.data())
def test_what_a_stripe_proves_is_proved_of_each_of_its_segments(data: st.DataObject) -> None:
    type, table, rows, starts = data.draw(_runs())
    predicate = data.draw(predicates(rows.schema, rows))
    run = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(table)))
    of_runs = prune_predicate(lambda _: (union(table, starts), type), predicate, len(starts))
    of_segments = prune_predicate(lambda _: (table, type), predicate, len(table))
    assert not (of_segments & ~of_runs[run]).any()


@given(data=st.data())
def test_bounds_that_are_put_together_say_what_each_part_says(data: st.DataObject) -> None:
    type, table, rows, starts = data.draw(_runs())
    predicate = data.draw(predicates(rows.schema, rows))
    parts = [
        table.slice(a, b - a)
        for a, b in zip(starts.tolist(), [*starts[1:].tolist(), len(table)], strict=True)
    ]
    bounds = Bounds.concat([Bounds.unknown(2), *(Bounds.read(part, type) for part in parts)])
    found = prune_predicate(lambda _: (bounds, type), predicate, bounds.num_rows)
    expected = [
        prune_predicate(lambda _, p=part: (p, type), predicate, len(part)) for part in parts
    ]
    assert found[2:].tolist() == np.concatenate(expected).tolist()
    chunked = Bounds.read(pa.concat_tables(parts), type)
    assert (
        prune_predicate(lambda _: (chunked, type), predicate, len(table)).tolist()
        == found[2:].tolist()
    )
    assert bounds.nbytes >= 4 * bounds.num_rows


def test_bounds_compare_as_words_as_they_do_as_bytes() -> None:
    stats = pa.table(
        to_batch(
            [summarize(pa.array(v, pa.int64())) for v in ([-5, 3], [None], [4, 2**62], [-(2**63)])]
        )
    )
    bounds = Bounds.read(stats, pa.int64())
    assert bounds.min.words is not None and bounds.min.absent is not None
    bytes_only = replace(
        bounds, min=replace(bounds.min, words=None), max=replace(bounds.max, words=None)
    )
    for op in ("=", "<", "<=", ">", ">=", "!=", "in", "not in"):
        for value in (-(2**63), -5, 3, 4, 2**62, 2**63 - 1, 2**70, 3.5):
            leaf = Leaf("c", op, (value, 3, 4) if "in" in op else value)
            assert (
                prune(bounds, leaf, pa.int64()).tolist()
                == prune(bytes_only, leaf, pa.int64()).tolist()
            ), leaf
    odd = stats.set_column(0, "min", pa.array([b"short", None, b"12345678", None], pa.binary()))
    assert Bounds.read(odd, pa.int64()).min.words is None
