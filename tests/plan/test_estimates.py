"""What is estimated of a plan: rows and bytes that are left, bounds, distinct values,
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
    """Four files of 100 rows, a day each; two rows of the first are deleted."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], indexes=["bitmap(city)"])
    for day in range(4):
        ids = list(range(100 * day, 100 * day + 100))
        cities = [f"c{i % 5}" if i % 10 else None for i in ids]
        columns = [ids, [date(2026, 1, 1 + day)] * 100, ids, cities, [i / 4 for i in ids]]
        table.bulk_insert(pa.table(list(map(pa.array, columns, SCHEMA.types)), schema=SCHEMA))
    table.build_indexes()
    table.delete({"id": [3, 4]})
    return table


def estimated(table, where, **options):
    scan = table.scan(where)
    found = plan(scan.metadata, scan.snapshot, scan.predicate)
    return estimate(found, SCHEMA.names, {"id": 398}.get, **options)


def spread(table, keys, where=None):
    """Estimate which keys of joins leave out no file."""
    scan = table.scan(where)
    if where is None:
        return estimate(scan.snapshot, [], {}.get, keys=keys)
    return estimate(plan(scan.metadata, scan.snapshot, scan.predicate), [], {}.get, keys=keys)


def test_all_rows_and_bounds_are_told_without_a_filter(table):
    found = estimated(table, None)
    assert found == estimate(table.scan().snapshot, SCHEMA.names, {"id": 398}.get)
    assert found.rows == 398
    assert found.bytes == sum(table.files()["size"].to_pylist()[:4]), (
        "the file that tells what was deleted has no rows"
    )
    told = {name: (one.low, one.high, one.distinct) for name, one in found.columns.items()}
    first = (date(2026, 1, 1) - date(1970, 1, 1)).days
    assert told["id"] == (0, 399, 398) and told["day"] == (first, first + 3, 4)
    assert told["price"][:2] == (0, 399) and told["fare"][1:] == (99.75, None)
    assert told["city"][0] is None and found.columns["city"].nulls == 40


def test_what_is_pruned_counts_no_more(table):
    everything, found = estimated(table, None), estimated(table, "day = date '2026-01-02'")
    assert found.rows == 100 and found.bytes < everything.bytes / 3
    columns = found.columns
    assert (columns["day"].distinct, columns["id"].low, columns["city"].nulls) == (1, 100, 10)


def test_rows_that_an_index_finds_are_counted(table):
    found = estimated(table, "city = 'c3'")
    assert found.rows == len(table.scan("city = 'c3'").to_arrow()) + 1, (
        "the bitmap knows a row that has died"
    )
    assert found.bytes < estimated(table, None).bytes


def test_nothing_is_left_of_a_filter_that_no_file_passes(table):
    found = estimated(table, "id > 1000", histograms=True)
    assert (found.rows, found.bytes) == (0, 0)
    assert not any(one.bins for one in found.columns.values())


def test_a_histogram_has_as_many_rows_in_each_bin(table):
    columns = estimated(table, None, histograms=True).columns
    bins = columns["id"].bins
    assert (len(bins), bins[0][0], bins[-1][1]) == (HISTOGRAM_BINS, 0, 399)
    assert all(low <= high for low, high, _ in bins)
    assert columns["id"].height == 398 / HISTOGRAM_BINS
    ends = np.searchsorted(np.arange(400), [high for _, high, _ in bins])
    assert np.abs(ends - np.linspace(0, 400, HISTOGRAM_BINS + 1)[1:]).max() < 4
    assert {distinct for *_, distinct in columns["day"].bins} == {1}
    assert not columns["city"].bins


def test_a_histogram_knows_where_rows_are_dense():
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
def test_keys_become_the_numbers_that_they_were_made_of(column):
    plain = column
    if pa.types.is_temporal(column.type):
        plain = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    expected = [float("nan") if value is None else float(value) for value in plain.to_pylist()]
    found = as_numbers(values.encode(column), column.type)
    assert np.allclose(found, expected, rtol=1e-12, equal_nan=True)


def test_keys_of_another_type_are_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        as_numbers(values.encode(pa.array([1, 2, 3])), pa.decimal128(9, 2))


def test_which_keys_of_joins_leave_out_no_file():
    """Files of one in four rows each: ``near`` is in order, ``far`` is not, ``most`` is not but in
    one file in twenty.
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
    found = spread(table, [*types, "nothing"])
    assert found.spread == ("far", "most", "wild") and found.columns == {}
    some = spread(table, [*types, "nothing"], "near < 900 and far >= 0")
    assert some.spread == ("far", "wild"), "one file in nine"
    assert estimate(table.scan().snapshot, ["far"], {}.get).spread == ()


def test_files_of_endless_numbers_alone_are_not_spread():
    schema = columns("id int64, x float64")
    table = mdt.create(MemoryStorage(), schema, key=["id"], options=QUIET)
    numbers = list(map(float, range(10)))
    for number, x in enumerate([[np.inf] * 10, numbers, numbers, [-np.inf] * 10, [np.nan] * 10]):
        ids = list(range(10 * number, 10 * number + 10))
        table.bulk_insert(pa.table([ids, x], schema=schema))
    assert spread(table, ["x"]).spread == ()
    assert spread(table, ["x"], "id >= 10 and id < 30").spread == ("x",)
