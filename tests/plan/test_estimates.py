"""Estimates of a plan: remaining rows and bytes, bounds, numbers of distinct values,
histograms.
"""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from indexes import values
from indexes.key_numbers import as_numbers
from mdt.plan.estimates import HISTOGRAM_BINS, edges_of, estimate
from mdt.plan.planner import plan
from mdt.stores.storage import MemoryStorage

QUIET = {"mdt.services.auto": "false"}
SCHEMA = columns("id int64, day date32[day], price decimal(9, 2), city string, fare float64")


@pytest.fixture(scope="module")
def table():
    """Four files of 100 rows, a day each. Two rows of the first file are deleted."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], indexes=["bitmap(city)"])
    for day in range(4):
        ids = list(range(100 * day, 100 * day + 100))
        cities = [f"c{i % 5}" if i % 10 else None for i in ids]
        columns = [ids, [date(2026, 1, 1 + day)] * 100, ids, cities, [i / 4 for i in ids]]
        table.bulk_insert(pa.table(list(map(pa.array, columns, SCHEMA.types)), schema=SCHEMA))
    table.build_indexes()
    table.delete({"id": [3, 4]})
    return table


def estimate_scan(table, where, **options):
    scan = table.scan(where)
    scan_plan = plan(scan.metadata, scan.snapshot, scan.predicate)
    return estimate(scan_plan, SCHEMA.names, {"id": 398}.get, **options)


def estimate_spread(table, keys, where=None):
    """Return an estimate whose ``spread`` lists the join keys that prune no files."""
    scan = table.scan(where)
    if where is None:
        return estimate(scan.snapshot, [], {}.get, keys=keys)
    return estimate(plan(scan.metadata, scan.snapshot, scan.predicate), [], {}.get, keys=keys)


def test_without_a_filter_an_estimate_has_all_rows_and_the_bounds_of_all_columns(table):
    estimated_scan = estimate_scan(table, None)
    assert estimated_scan == estimate(table.scan().snapshot, SCHEMA.names, {"id": 398}.get)
    assert estimated_scan.rows == 398
    assert estimated_scan.bytes == sum(table.files()["size"].to_pylist()[:4]), (
        "the file of the deletes has no rows"
    )
    bounds = {
        name: (column.low, column.high, column.distinct)
        for name, column in estimated_scan.columns.items()
    }
    first = (date(2026, 1, 1) - date(1970, 1, 1)).days
    assert bounds["id"] == (0, 399, 398) and bounds["day"] == (first, first + 3, 4)
    assert bounds["price"][:2] == (0, 399) and bounds["fare"][1:] == (99.75, None)
    assert bounds["city"][0] is None and estimated_scan.columns["city"].nulls == 40


def test_pruned_files_are_not_counted(table):
    everything, filtered = (
        estimate_scan(table, None),
        estimate_scan(table, "day = date '2026-01-02'"),
    )
    assert filtered.rows == 100 and filtered.bytes < everything.bytes / 3
    columns = filtered.columns
    assert (columns["day"].distinct, columns["id"].low, columns["city"].nulls) == (1, 100, 10)


def test_rows_selected_by_an_index_are_counted(table):
    estimated_scan = estimate_scan(table, "city = 'c3'")
    assert estimated_scan.rows == len(table.scan("city = 'c3'").to_arrow()) + 1, (
        "the bitmap still has a deleted row"
    )
    assert estimated_scan.bytes < estimate_scan(table, None).bytes


def test_an_estimate_is_zero_if_no_file_passes_the_filter(table):
    estimated_scan = estimate_scan(table, "id > 1000", histograms=True)
    assert (estimated_scan.rows, estimated_scan.bytes) == (0, 0)
    assert not any(column.bins for column in estimated_scan.columns.values())


def test_bins_of_a_histogram_have_equal_row_counts(table):
    columns = estimate_scan(table, None, histograms=True).columns
    bins = columns["id"].bins
    assert (len(bins), bins[0][0], bins[-1][1]) == (HISTOGRAM_BINS, 0, 399)
    assert all(low <= high for low, high, _ in bins)
    assert columns["id"].height == 398 / HISTOGRAM_BINS
    ends = np.searchsorted(np.arange(400), [high for _, high, _ in bins])
    assert np.abs(ends - np.linspace(0, 400, HISTOGRAM_BINS + 1)[1:]).max() < 4
    assert {distinct for *_, distinct in columns["day"].bins} == {1}
    assert not columns["city"].bins


def test_edges_of_a_histogram_follow_the_density_of_rows():
    low, high, rows = np.array([[0.0, 1000.0, 5.0], [10.0, 2000.0, 5.0], [90.0, 10.0, 100.0]])
    edges = edges_of(low, high, rows)
    at = [0, 5 - 1e-3, 5 + 1e-3, 10, 1000, 2000]
    inside = np.interp(at, edges, np.linspace(0, 1, len(edges)))
    assert inside == pytest.approx([0, 0.225, 0.725, 0.95, 0.95, 1], abs=0.02)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-(2**63), -1, 0, 2**62, None]),
        pa.array([True, None, False]),
        pa.array([1.5, -0.25, float("inf"), None]),
        pa.array([Decimal("-1.25"), Decimal(10**20), None, Decimal("0.01")], pa.decimal128(38, 2)),
        pa.array([0, -1, 1], "int32").cast("date32"),
        pa.array([0, -1, 10**15]).cast(pa.timestamp("us")),
    ],
)
def test_encoded_keys_decode_to_the_numbers_they_encode(column):
    plain = column
    if pa.types.is_temporal(column.type):
        plain = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    expected = [float("nan") if value is None else float(value) for value in plain.to_pylist()]
    decoded = as_numbers(values.encode(column), column.type)
    assert np.allclose(decoded, expected, rtol=1e-12, equal_nan=True)


def test_decoding_keys_as_a_type_of_another_width_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        as_numbers(values.encode(pa.array([1, 2, 3])), pa.decimal128(9, 2))


def test_join_keys_spread_over_all_files_are_reported():
    """Each of twenty files has every twentieth id. Values of ``near`` are clustered by file. Those
    of ``far`` are not, and those of ``most`` are not except in one file.
    """
    numbers = ("id", "near", "far", "most", "known", "half", "same", "void")
    types = dict.fromkeys(numbers, pa.int64()) | {"text": pa.string(), "wild": pa.float64()}
    table = mdt.create(
        MemoryStorage(), pa.schema(types), key=["id"], indexes=["bitmap(known)"], options=QUIET
    )
    far = list(range(0, 100, 10))
    for number in range(20):
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
        table.bulk_insert(pa.table(rows, schema=table.schema))
    table.build_indexes()
    without_filter = estimate_spread(table, [*types, "nothing"])
    assert without_filter.spread == ("far", "most", "wild") and without_filter.columns == {}
    filtered = estimate_spread(table, [*types, "nothing"], "near < 900 and far >= 0")
    assert filtered.spread == ("far", "wild"), "one of nine files has other values of most"
    assert estimate(table.scan().snapshot, ["far"], {}.get).spread == ()


def test_columns_with_files_of_only_infinite_values_or_nan_are_not_reported_as_spread():
    schema = columns("id int64, x float64")
    table = mdt.create(MemoryStorage(), schema, key=["id"], options=QUIET)
    numbers = list(map(float, range(10)))
    for number, x in enumerate([[np.inf] * 10, numbers, numbers, [-np.inf] * 10, [np.nan] * 10]):
        ids = list(range(10 * number, 10 * number + 10))
        table.bulk_insert(pa.table([ids, x], schema=schema))
    assert estimate_spread(table, ["x"]).spread == ()
    assert estimate_spread(table, ["x"], "id >= 10 and id < 30").spread == ("x",)
