"""limit and order_by: the first rows are those of a full sort, whatever was not read; ordered
tables are read in part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import QUIET, tables
from reader import bag
from watched import ORDERED, Watched, files_by_time

import mdt
from indexes import column_stats
from indexes.predicate import Predicate, matches
from indexes.testing import predicates
from mdt import Invalid
from mdt.stores.storage import MemoryStorage

Order = list[tuple[str, str, str]]


def place(value: Any) -> Any:
    """Return ``value`` as something that Python compares as Spark does."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def sorted_places(rows: pa.Table, order: Order) -> list[tuple[Any, ...]]:
    """Return what the rows are sorted by, sorted by Python's own sort: None for null."""

    def compare(left: Sequence[Any], right: Sequence[Any]) -> int:
        for a, b, (_, way, nulls) in zip(left, right, order, strict=True):
            if (a is None) != (b is None):
                return -1 if (a is None) == (nulls == "nulls first") else 1
            if a is not None and a != b:
                return (-1 if a < b else 1) * (1 if way == "asc" else -1)
        return 0

    return sorted(places(rows, order), key=cmp_to_key(compare))


def places(rows: pa.Table, order: Order) -> list[tuple[Any, ...]]:
    columns = [
        [None if v is None else place(v) for v in rows[name].to_pylist()] for name, _, _ in order
    ]
    return list(zip(*columns, strict=True))


def assert_first(scan: Any, rows: pa.Table, order: Order, limit: int | None) -> None:
    """Assert that ``scan`` returns the first rows of ``rows`` in ``order``, each as often as there
    are.
    """
    found = scan.to_arrow()
    expected = sorted_places(rows, order)[:limit]
    assert places(found, order) == expected, f"{order} limit {limit}\n{scan.explain()}"
    assert not bag(found) - bag(rows), "rows that the table does not have"


@st.composite
def orders(draw: st.DrawFn, schema: pa.Schema) -> Order:
    names = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=3, unique=True))
    ways, nulls = st.sampled_from(("asc", "desc")), st.sampled_from(("nulls first", "nulls last"))
    return [(name, draw(ways), draw(nulls)) for name in names]


def filtered(table: mdt.Table, predicate: Predicate | None, **more: Any) -> Any:
    scan = table.scan(**more)
    scan.predicate = predicate
    return scan


def check_first_rows(data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    for _ in range(4):
        predicate = data.draw(st.none() | predicates(table.schema, rows))
        kept = rows if predicate is None else rows.filter(matches(predicate, rows))
        order, limit = data.draw(orders(table.schema)), data.draw(st.none() | st.integers(0, 12))
        assert_first(filtered(table, predicate, order_by=order, limit=limit), kept, order, limit)
        some = filtered(table, predicate, limit=limit)
        found = some.to_arrow()
        assert len(found) == some.count() == (len(kept) if limit is None else min(limit, len(kept)))
        assert not bag(found) - bag(kept)
        count("orders, first rows compared with a full sort")


@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_the_first_rows_in_an_order_are_those_of_a_full_sort(data: st.DataObject) -> None:
    check_first_rows(data)


@pytest.mark.nightly
@given(data=st.data())
@settings(max_examples=1500, **QUIET)
def test_the_first_rows_in_an_order_are_those_of_a_full_sort_many_times(
    data: st.DataObject,
) -> None:
    check_first_rows(data)


@pytest.mark.parametrize(
    "order", ["ts desc", "ts", "note desc", "id asc, x", [("ts", "desc"), ("id", "asc")]]
)
def test_the_best_rows_of_an_ordered_table_are_read_from_few_files(order: Any) -> None:
    storage = Watched()
    table = files_by_time(storage)
    rows = table.scan().to_arrow()
    storage.seen.clear()
    scan = table.scan(order_by=order, limit=10)
    found = scan.to_arrow()
    # Bounds of notes are cut before the place where they differ: every file may hold the best.
    assert len(storage.seen) <= (40 if order == "note desc" else 4), storage.seen
    name, rising = ("note", False) if order == "note desc" else ("ts", order in ("ts", "id asc, x"))
    expected = sorted(rows[name].to_pylist(), reverse=not rising)[:10]
    assert found[name].to_pylist() == expected
    assert "known for 40 of 40 files" in str(scan.explain())


def test_the_best_rows_are_found_where_a_filter_and_deletes_leave_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Watched()
    table = files_by_time(storage)
    last = 40 * 300
    table.delete(pa.table({"id": [f"k{t:06}" for t in range(last - 1000, last)]}))
    storage.seen.clear()
    assert table.scan(order_by="ts desc", limit=3).to_arrow()["ts"].to_pylist() == [
        last - 1001,
        last - 1002,
        last - 1003,
    ]
    assert len(storage.seen) <= 12, storage.seen
    found = table.scan("x < 5", order_by="ts desc", limit=4).to_arrow()
    expected = [t for t in range(last - 1000) if t % 7 and t * 7919 % 10_007 < 5][::-1][:4]
    assert found["ts"].to_pylist() == expected


def test_a_limit_reads_no_more_files_than_it_needs() -> None:
    storage = Watched()
    table = files_by_time(storage)
    for scan, files in (
        (table.scan(limit=10), 1),
        (table.scan(limit=301), 2),
        (table.scan("ts >= 0", limit=10), 16),
    ):
        storage.seen.clear()
        assert scan.to_arrow().num_rows == scan.limit == scan.count()
        assert len(storage.seen) <= files
    storage.seen.clear()
    assert (
        table.scan(limit=0).to_arrow().num_rows
        == table.scan(limit=0, order_by="ts").to_arrow().num_rows
        == 0
    )
    assert table.scan("ts > 3", limit=0).count() == 0 and table.scan(limit=20_000).count() == 12_000
    assert not storage.seen
    told = table.scan(limit=10).explain()
    assert (told.files_read, told.rows_read, told.limit) == (1, 10, 10)


def test_nan_nulls_and_zeros_stand_where_spark_puts_them() -> None:
    table = mdt.create(
        MemoryStorage(), pa.schema([("id", pa.int64()), ("x", pa.float32())]), ["id"]
    )
    values = [None, -math.inf, -1.5, -0.0, 0.0, math.inf, math.nan]
    table.bulk_insert(pa.table({"id": range(7), "x": pa.array(values, pa.float32())}))

    def order(order_by: str, limit: int | None = None) -> list[int]:
        return table.scan(order_by=order_by, limit=limit).to_arrow()["id"].to_pylist()

    assert order("x, id") == [0, 1, 2, 3, 4, 5, 6]
    assert order("x desc, id") == [6, 5, 3, 4, 2, 1, 0]
    assert order("x nulls last, id") == [1, 2, 3, 4, 5, 6, 0]
    assert order("x desc nulls first, id desc") == [0, 6, 5, 4, 3, 2, 1]
    assert [order("x", n) for n in (1, 2)] == [[0], [0, 1]] and order("x desc", 2) == [6, 5]


def test_an_order_by_columns_that_are_not_returned_and_by_fields_of_structs() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.struct([("city", pa.string()), ("no", pa.int32())])),
            ("desc", pa.int32()),
        ]
    )
    table = mdt.create(MemoryStorage(), schema, ["id"])
    rows = [{"id": i, "at": {"city": "xyz"[i % 3], "no": -i}, "desc": i % 2} for i in range(9)] + [
        {"id": 9, "at": None, "desc": None}
    ]
    table.bulk_insert(pa.Table.from_pylist(rows, schema))
    found = table.scan(columns=["id"], order_by="at.city desc, `at`.`no`", limit=4).to_arrow()
    assert found.to_pylist() == [{"id": 8}, {"id": 5}, {"id": 2}, {"id": 7}]
    assert table.scan(order_by="at.city").to_arrow()["id"][0].as_py() == 9
    assert table.scan(order_by="`desc` desc, id desc", limit=2).to_arrow()["id"].to_pylist() == [
        7,
        5,
    ]
    assert table.scan(order_by="desc desc, id", limit=2).to_arrow()["id"].to_pylist() == [1, 3]
    assert table.scan(order_by="_hoodie_record_key desc", limit=2, columns=["id"]).to_arrow()[
        "id"
    ].to_pylist() == [9, 8]
    assert table.scan(order_by=["id desc", ("id", "asc")], limit=1).to_arrow()[
        "id"
    ].to_pylist() == [9]


@pytest.mark.parametrize(
    ("order_by", "text"),
    [
        ("", "cannot be read"),
        ("ts,", "cannot be read"),
        ("ts descending", "cannot be read"),
        ("ts desc nulls", "cannot be read"),
        ("`ts", "cannot be read"),
        ("tss", "did you mean ts"),
        (5, "takes text or a list"),
        (b"ts", "takes text or a list"),
        ([5], "no column: 5"),
        ([("ts", 1)], "no column"),
        ([()], "no column"),
        ([("ts", "up")], "cannot sort"),
        ([("ts", "asc", "nulls middle")], "cannot sort"),
        ({"ts": "asc"}, "takes text or a list"),
        ("tags", "have no order"),
        ("," * 400_000, "cannot be read"),
        ("a" * 400_000, "there is no column"),
        ("ts\0", "there is no column"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(order_by: Any, text: str) -> None:
    table = mdt.create(
        MemoryStorage(),
        pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))]),
        ["id"],
    )
    with pytest.raises(Invalid, match=text) as error:
        table.scan(order_by=order_by)
    assert error.value.hint and len(str(error.value)) < 500


@pytest.mark.parametrize("limit", [-1, True, 2.0, "5", b"1", [1], math.nan, object()])
def test_a_limit_that_is_no_number_of_rows_is_refused(limit: Any) -> None:
    table = mdt.create(MemoryStorage(), ORDERED, ["id"])
    with pytest.raises(Invalid, match="limit"):
        table.scan(limit=limit)


def test_a_limit_may_be_any_integer() -> None:
    table = files_by_time(MemoryStorage(), files=2, rows=10)
    for limit in (np.int64(3), np.uint8(3), 3):
        assert table.scan(limit=limit).to_arrow().num_rows == 3
    for more in ({}, {"order_by": "ts"}, {"where": "ts >= 0"}):
        assert table.scan(limit=10**40, **more).to_arrow().num_rows == 20


@pytest.mark.parametrize("where", [None, "ts >= 100", "ts < 0"])
@pytest.mark.parametrize("order_by", [None, "ts desc"])
@pytest.mark.parametrize("limit", [None, 0, 7, 10_000])
def test_without_columns_there_are_as_many_rows(
    where: str | None, order_by: str | None, limit: int | None
) -> None:
    table = files_by_time(MemoryStorage(), files=3, rows=150)
    expected = table.scan(where, limit=limit).count()
    scan = table.scan(where, [], order_by=order_by, limit=limit)
    assert (
        scan.count()
        == scan.to_arrow().num_rows
        == sum(batch.num_rows for batch in scan)
        == expected
    )
    assert (
        pa.table(scan).num_rows
        == pa.RecordBatchReader.from_stream(scan).read_all().num_rows
        == expected
    )


def test_an_empty_table_has_no_first_rows() -> None:
    table = mdt.create(MemoryStorage(), ORDERED, ["id"])
    for more in (
        {"limit": 3},
        {"order_by": "ts"},
        {"order_by": "ts", "limit": 3},
        {"where": "ts > 1", "limit": 3},
    ):
        found = table.scan(**more).to_arrow()
        assert found.schema == table.schema and len(found) == 0


@pytest.mark.parametrize(
    "mutant",
    [
        lambda right: lambda lookup, predicate, n: np.arange(n) < 1,
        lambda right: lambda lookup, predicate, n: ~right(lookup, predicate, n),
    ],
    ids=["all but the first are left out", "what may hold a row is left out"],
)
def test_a_search_that_leaves_out_too_much_is_caught(
    mutant: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = files_by_time(MemoryStorage(), files=4, rows=1500)
    rows, order = table.scan().to_arrow(), [("x", "asc", "nulls last")]
    assert_first(table.scan(order_by=order, limit=30), rows, order, 30)
    monkeypatch.setattr(column_stats, "prune_predicate", mutant(column_stats.prune_predicate))
    with pytest.raises(AssertionError):
        assert_first(table.scan(order_by=order, limit=30), rows, order, 30)
