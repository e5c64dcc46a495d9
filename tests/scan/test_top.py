"""``limit`` and ``order_by``: the first rows are those of a full sort, even though files are
skipped. Of tables in order, few files are read.
"""

import math
from functools import cmp_to_key

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from random_tables import examples, tables
from reader import bag
from watched import ORDERED, Watched, files_by_time

import mdt
from indexes.predicate import matches
from indexes.testing import predicates
from mdt import Invalid
from mdt.stores.storage import MemoryStorage


def sort_keys(rows, order):
    """Return the sort keys of the rows in a form that Python compares as Spark does. Null is
    None.
    """

    def comparable(value):
        if isinstance(value, float):
            return math.isnan(value), 0.0 if math.isnan(value) else value
        return value.encode() if isinstance(value, str) else value

    columns = [
        [None if value is None else comparable(value) for value in rows[name].to_pylist()]
        for name, _, _ in order
    ]
    return list(zip(*columns, strict=True))


def sorted_keys(rows, order):
    """Return the sort keys of the rows, sorted by Python."""

    def compare(left, right):
        for a, b, (_, way, nulls) in zip(left, right, order, strict=True):
            if (a is None) != (b is None):
                return -1 if (a is None) == (nulls == "nulls first") else 1
            if a is not None and a != b:
                return -1 if (a < b) == (way == "asc") else 1
        return 0

    return sorted(sort_keys(rows, order), key=cmp_to_key(compare))


def assert_first(scan, rows, order, limit):
    """Assert that ``scan`` returns the first rows of ``rows`` in ``order``, with the right
    repetitions.
    """
    first_rows = scan.to_arrow()
    expected = sorted_keys(rows, order)[:limit]
    assert sort_keys(first_rows, order) == expected, f"{order} limit {limit}\n{scan.explain()}"
    assert not bag(first_rows) - bag(rows), "rows that the table does not have"


@st.composite
def orders(draw, schema):
    names = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=3, unique=True))
    ways, nulls = st.sampled_from(("asc", "desc")), st.sampled_from(("nulls first", "nulls last"))
    return [(name, draw(ways), draw(nulls)) for name in names]


def scan_with_predicate(table, predicate, **more):
    scan = table.scan(**more)
    scan.predicate = predicate
    return scan


@given(data=st.data())
@examples(60, 1500)
def test_the_first_rows_of_an_order_are_those_of_a_full_sort(data):
    table, rows = data.draw(tables())
    for _ in range(4):
        predicate = data.draw(st.none() | predicates(table.schema, rows))
        matching = rows if predicate is None else rows.filter(matches(predicate, rows))
        order, limit = data.draw(orders(table.schema)), data.draw(st.none() | st.integers(0, 12))
        assert_first(
            scan_with_predicate(table, predicate, order_by=order, limit=limit),
            matching,
            order,
            limit,
        )
        limited = scan_with_predicate(table, predicate, limit=limit)
        limited_rows = limited.to_arrow()
        assert len(limited_rows) == limited.count() == len(matching[:limit])
        assert not bag(limited_rows) - bag(matching)
        count("orders, first rows compared with a full sort")


@pytest.mark.parametrize(
    ("order", "column", "falling", "files"),
    [
        ("ts desc", "ts", True, 4),
        ("ts", "ts", False, 4),
        ("id asc, x", "ts", False, 4),
        ([("ts", "desc"), ("id", "asc")], "ts", True, 4),
        # Bounds of notes are truncated before they differ, so every file may have the first rows.
        ("note desc", "note", True, 40),
    ],
)
def test_the_first_rows_of_an_ordered_table_are_read_from_few_files(order, column, falling, files):
    storage = Watched()
    table = files_by_time(storage)
    expected = sorted(table.scan().to_arrow()[column].to_pylist(), reverse=falling)[:10]
    storage.seen.clear()
    scan = table.scan(order_by=order, limit=10)
    assert scan.to_arrow()[column].to_pylist() == expected
    assert len(storage.seen) <= files, storage.seen
    assert "known for 40 of 40\n" in str(scan.explain())


def test_the_first_rows_are_found_after_a_filter_and_deletes_removed_many():
    storage = Watched()
    table = files_by_time(storage)
    end = 40 * 300 - 1000
    table.delete({"id": [f"k{t:06}" for t in range(end, end + 1000)]})
    storage.seen.clear()

    def newest(number, where=None):
        scan = table.scan(where, order_by="ts desc", limit=number)
        return scan.to_arrow()["ts"].to_pylist()

    assert newest(3) == [end - 1, end - 2, end - 3]
    assert len(storage.seen) <= 12, storage.seen
    expected = [t for t in range(end) if t % 7 and t * 7919 % 10_007 < 5]
    assert newest(4, "x < 5") == expected[:-5:-1]


@pytest.mark.parametrize(
    ("where", "more", "rows", "files"),
    [
        (None, {"limit": 10}, 10, 1),
        (None, {"limit": np.int64(301)}, 301, 2),
        ("ts >= 0", {"limit": np.uint8(10)}, 10, 16),
        (None, {"limit": 0}, 0, 0),
        (None, {"limit": 0, "order_by": "ts"}, 0, 0),
        ("ts > 3", {"limit": 0}, 0, 0),
        (None, {"limit": 20_000}, 12_000, 40),
        (None, {"limit": 10**40, "order_by": "ts"}, 12_000, 40),
        ("ts >= 0", {"limit": 10**40}, 12_000, 40),
    ],
)
def test_a_limit_reads_no_more_files_than_needed(where, more, rows, files):
    storage = Watched()
    scan = files_by_time(storage).scan(where, **more)
    storage.seen.clear()
    assert scan.to_arrow().num_rows == scan.count() == rows
    assert len(storage.seen) <= files


def test_a_plan_reports_the_files_and_rows_that_a_limit_reads():
    explanation = files_by_time(MemoryStorage()).scan(limit=10).explain()
    assert (explanation.files_read, explanation.rows_read, explanation.limit) == (1, 10, 10)


@pytest.mark.parametrize(
    ("order_by", "limit", "expected"),
    [
        ("x, id", None, [0, 1, 2, 3, 4, 5, 6]),
        ("x desc, id", None, [6, 5, 3, 4, 2, 1, 0]),
        ("x nulls last, id", None, [1, 2, 3, 4, 5, 6, 0]),
        ("x desc nulls first, id desc", None, [0, 6, 5, 4, 3, 2, 1]),
        ("x", 1, [0]),
        ("x", 2, [0, 1]),
        ("x desc", 2, [6, 5]),
    ],
)
def test_nan_nulls_and_zeros_are_ordered_as_in_spark(order_by, limit, expected):
    x = pa.array([None, -math.inf, -1.5, -0.0, 0.0, math.inf, math.nan], "float32")
    rows = pa.table({"id": range(7), "x": x})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    table.bulk_insert(rows)
    ordered = table.scan(order_by=order_by, limit=limit).to_arrow()
    assert ordered["id"].to_pylist() == expected


@pytest.mark.parametrize(
    ("order_by", "expected"),
    [
        ("at.city desc, `at`.`no`", [8, 5, 2, 7]),
        ("at.city, id", [9, 0, 3, 6]),
        ("`desc` desc, id desc", [7, 5, 3, 1]),
        ("desc desc, id", [1, 3, 5, 7]),
        ("_hoodie_record_key desc", [9, 8, 7, 6]),
        (["id desc", ("id", "asc")], [9, 8, 7, 6]),
    ],
)
def test_rows_are_ordered_by_fields_of_structs_and_columns_that_are_not_returned(
    order_by, expected
):
    at = pa.struct({"city": "string", "no": "int32"})
    rows = [{"id": i, "at": {"city": "xyz"[i % 3], "no": -i}, "desc": i % 2} for i in range(9)]
    schema = pa.schema({"id": "int64", "at": at, "desc": "int32"})
    table = mdt.create(MemoryStorage(), schema, ["id"])
    table.bulk_insert(pa.Table.from_pylist([*rows, {"id": 9}], schema))
    ordered = table.scan(columns=["id"], order_by=order_by, limit=4).to_arrow()
    assert ordered.to_pydict() == {"id": expected}


@pytest.mark.parametrize(
    ("order_by", "text"),
    [
        ("", "cannot be parsed"),
        ("ts,", "cannot be parsed"),
        ("ts descending", "cannot be parsed"),
        ("ts desc nulls", "cannot be parsed"),
        ("`ts", "cannot be parsed"),
        ("tss", "did you mean ts"),
        (5, "takes text or a list"),
        (b"ts", "takes text or a list"),
        ([5], "not a column: 5"),
        ([("ts", 1)], "not a column"),
        ([()], "not a column"),
        ([("ts", "up")], "is not an order"),
        ([("ts", "asc", "nulls middle")], "is not an order"),
        ({"ts": "asc"}, "takes text or a list"),
        ("tags", "has no order"),
        ("," * 400_000, "cannot be parsed"),
        ("a" * 400_000, "there is no column"),
        ("ts\0", "there is no column"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_invalid_order_is_refused(order_by, text):
    schema = pa.schema({"id": "int64", "ts": "int64", "tags": pa.list_(pa.string())})
    table = mdt.create(MemoryStorage(), schema, ["id"])
    with pytest.raises(Invalid, match=text) as error:
        table.scan(order_by=order_by)
    assert error.value.hint and len(str(error.value)) < 500


@pytest.mark.parametrize("limit", [-1, True, 2.0, "5", b"1", [1], math.nan, object()])
def test_an_invalid_limit_is_refused(limit):
    table = mdt.create(MemoryStorage(), ORDERED, ["id"])
    with pytest.raises(Invalid, match="limit"):
        table.scan(limit=limit)


@pytest.mark.parametrize(
    "more", [{}, {"order_by": "ts"}, {"where": "ts > 1"}], ids=["rows", "order", "filter"]
)
def test_an_empty_table_returns_no_rows_with_a_limit_or_order(more):
    table = mdt.create(MemoryStorage(), ORDERED, ["id"])
    for limit in (3, None):
        assert table.scan(limit=limit, **more).to_arrow().equals(table.schema.empty_table())
