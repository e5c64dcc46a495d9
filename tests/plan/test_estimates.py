"""What is estimated of a plan: rows and bytes that are left, bounds, distinct values,
histograms.
"""

from __future__ import annotations

import warnings
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mdt
from indexes import values
from indexes.key_numbers import as_numbers
from mdt.plan.estimates import HISTOGRAM_BINS, TableEstimate, edges_of, estimate, estimate_whole
from mdt.plan.planner import plan

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("city", pa.string()),
        ("fare", pa.float64()),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> mdt.Table:
    """Four files of 100 rows, a day each; two rows of the first are deleted."""
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"], indexes=["bitmap(city)"])
    for day in range(4):
        ids = list(range(100 * day, 100 * day + 100))
        columns = [
            ids,
            [date(2026, 1, 1 + day)] * 100,
            ids,
            [f"c{i % 5}" if i % 10 else None for i in ids],
            [i / 4 for i in ids],
        ]
        table.bulk_insert(
            pa.table(
                [pa.array(v, t) for v, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
            )
        )
    table.build_indexes()
    table.delete({"id": [3, 4]})
    return table


def estimated(table: mdt.Table, where: str | None, **options: bool) -> TableEstimate:
    scan = table.scan(where)
    found = plan(scan.metadata, scan.snapshot, scan.predicate)
    return estimate(found, SCHEMA.names, {"id": 398}.get, **options)


def test_a_scan_of_everything_is_estimated_without_its_plan(table: mdt.Table) -> None:
    found = estimate_whole(table.scan().snapshot, SCHEMA.names, {"id": 398}.get)
    assert found == estimated(table, None) and found.rows == 398


def test_all_rows_and_bounds_are_told_without_a_filter(table: mdt.Table) -> None:
    found = estimated(table, None)
    assert found.rows == 398
    assert found.bytes == sum(table.files()["size"].to_pylist()[:4]), (
        "the file that tells what was deleted has no rows"
    )
    assert found.columns["id"].distinct == 398 and (
        found.columns["id"].low,
        found.columns["id"].high,
    ) == (0, 399)
    days = found.columns["day"]
    assert (
        days.distinct == 4
        and days.high is not None
        and days.low is not None
        and days.high - days.low == 3
    )
    assert (found.columns["price"].low, found.columns["price"].high) == (0, 399)
    assert found.columns["fare"].high == 99.75 and found.columns["fare"].distinct is None
    assert found.columns["city"].low is None and found.columns["city"].nulls == 40


def test_what_is_pruned_counts_no_more(table: mdt.Table) -> None:
    everything, found = estimated(table, None), estimated(table, "day = date '2026-01-02'")
    assert found.rows == 100 and found.bytes < everything.bytes / 3
    assert (
        found.columns["day"].distinct == 1
        and found.columns["id"].low == 100
        and found.columns["city"].nulls == 10
    )


def test_rows_that_an_index_finds_are_counted(table: mdt.Table) -> None:
    found = estimated(table, "city = 'c3'")
    assert found.rows == len(table.scan("city = 'c3'").to_arrow()) + 1, (
        "the bitmap knows a row that has died"
    )
    assert found.bytes < estimated(table, None).bytes


def test_nothing_is_left_of_a_filter_that_no_file_passes(table: mdt.Table) -> None:
    found = estimated(table, "id > 1000", histograms=True)
    assert (found.rows, found.bytes) == (0, 0) and all(
        not one.bins for one in found.columns.values()
    )


def test_a_histogram_has_as_many_rows_in_each_bin(table: mdt.Table) -> None:
    found = estimated(table, None, histograms=True)
    bins = found.columns["id"].bins
    assert len(bins) == HISTOGRAM_BINS and bins[0][0] == 0 and bins[-1][1] == 399
    assert (
        all(low <= high for low, high, _ in bins)
        and found.columns["id"].height == 398 / HISTOGRAM_BINS
    )
    ends = np.array([high for _, high, _ in bins])
    assert (
        np.abs(
            np.searchsorted(np.arange(400), ends)
            - np.arange(1, HISTOGRAM_BINS + 1) * 400 / HISTOGRAM_BINS
        ).max()
        < 4
    )
    assert {distinct for *_, distinct in found.columns["day"].bins} == {1}
    assert not found.columns["city"].bins


def test_a_histogram_knows_where_rows_are_dense() -> None:
    edges = edges_of(
        np.array([0.0, 1000.0, 5.0]), np.array([10.0, 2000.0, 5.0]), np.array([90.0, 10.0, 100.0])
    )
    inside = np.interp(
        [0, 5 - 1e-3, 5 + 1e-3, 10, 1000, 2000], edges, np.linspace(0, 1, len(edges))
    )
    assert np.abs(inside - np.array([0, 0.225, 0.725, 0.95, 0.95, 1])).max() < 0.02


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-(2**63), -1, 0, 2**62, None]),
        pa.array([True, None, False]),
        pa.array([1.5, -0.25, float("inf"), None]),
        pa.array([Decimal("-1.25"), Decimal(10**20), None, Decimal("0.01")], pa.decimal128(38, 2)),
        pa.array([0, -1, 1], pa.int32()).cast(pa.date32()),
        pa.array([0, -1, 10**15]).cast(pa.timestamp("us")),
    ],
)
def test_keys_become_the_numbers_that_they_were_made_of(column: pa.Array) -> None:
    plain = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    plain = plain.cast(pa.int64()) if pa.types.is_timestamp(column.type) else plain
    expected = np.array([float("nan") if v is None else float(v) for v in plain.to_pylist()])
    assert np.allclose(
        as_numbers(values.encode(column), column.type), expected, rtol=1e-12, equal_nan=True
    )


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        as_numbers(values.encode(pa.array([1, 2, 3])), pa.decimal128(9, 2))


def test_which_keys_of_joins_leave_out_no_file(tmp_path: Path) -> None:
    """Files of one in four rows each: ``near`` is in order, ``far`` is not, ``most`` is not but in
    one file in twenty.
    """
    names = ("id", "near", "far", "most", "known", "half", "same", "void")
    schema = pa.schema(
        [(name, pa.int64()) for name in names] + [("text", pa.string()), ("wild", pa.float64())]
    )
    table = mdt.create(
        tmp_path / "t",
        schema,
        key=["id"],
        indexes=["bitmap(known)"],
        options={"mdt.services.auto": "false"},
    )
    for number in range(20):
        far = list(range(0, 100, 10))
        rows = {
            "id": [i * 20 + number for i in far],
            "near": [number * 100 + i for i in far],
            "far": far,
            "most": [5] * 10 if number == 7 else far,
            "known": far,
            "half": far if number % 2 else [1] * 10,
            "same": [3] * 10,
            "void": [None] * 10,
            "text": list(map(str, far)),
            "wild": [-1e308, 1e308, *map(float, far[2:])],
        }
        table.bulk_insert(pa.table(rows, schema=schema))
    table.build_indexes()
    keys = [*names, "text", "wild", "nothing"]
    found = estimate_whole(table.scan().snapshot, [], {}.get, keys=keys)
    assert found.spread == ("far", "most", "wild") and found.columns == {}
    part = plan(
        table.scan().metadata,
        table.scan().snapshot,
        table.scan("near < 900 and far >= 0").predicate,
    )
    assert estimate(part, [], {}.get, keys=keys).spread == ("far", "wild"), "one file in nine"
    assert estimate_whole(table.scan().snapshot, ["far"], {}.get).spread == ()


def test_files_of_endless_numbers_alone_are_not_spread_and_do_not_warn(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    table = mdt.create(tmp_path / "t", schema, key=["id"], options={"mdt.services.auto": "false"})
    for number, values_of in enumerate(
        ([np.inf] * 10, range(10), range(10), [-np.inf] * 10, [np.nan] * 10)
    ):
        ids = range(10 * number, 10 * number + 10)
        table.bulk_insert(pa.table([list(ids), list(map(float, values_of))], schema=schema))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate_whole(table.scan().snapshot, [], {}.get, keys=["x"]).spread == ()
        some = plan(
            table.scan().metadata,
            table.scan().snapshot,
            table.scan("id >= 10 and id < 30").predicate,
        )
        assert estimate(some, [], {}.get, keys=["x"]).spread == ("x",)
