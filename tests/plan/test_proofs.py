"""Facts that statistics prove of the rows: totals, bounds of the first rows of an order, files with
enough rows. Each is compared with the rows.
"""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from random_tables import examples, tables
from texts import columns

import mdt
from indexes import values
from indexes.predicate import Leaf, matches
from indexes.testing import predicates
from mdt.filters.order import SortKey
from mdt.plan import proofs
from mdt.plan.planner import ScanPlan, SegmentScan, plan
from mdt.plan.proofs import QueryFiles
from mdt.scan.reader import read
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, day int32, city string, fare float64")


def query_files(table, predicate):
    scan = table.scan()
    planned_files = QueryFiles.from_plan(plan(scan.metadata, scan.snapshot, predicate))
    if predicate is None:
        all_files = QueryFiles.all_files(scan.snapshot)
        assert all_files.files.tolist() == planned_files.files.tolist()
    return planned_files


def keys_of(rows, column):
    return [key for key in values.encode(rows[column]).to_pylist() if key is not None]


def check(table, rows, predicate, numbers):
    """Compare every fact that is proved of the rows matching ``predicate`` with these rows."""
    planned_files = query_files(table, predicate)
    expected = rows.filter(matches(predicate, rows))
    stored = planned_files.snapshot.definition.schema
    columns = [field.name for field in rows.schema if stored.field(field.name).type == field.type]
    totals = proofs.totals(planned_files, columns)
    if totals is not None:
        count("totals that were proved")
        assert totals.rows == len(expected)
        assert totals.nulls == {name: expected[name].null_count for name in totals.nulls}
        for side, pick in ((totals.least, min), (totals.most, max)):
            assert side == {name: pick(keys_of(expected, name), default=None) for name in side}
    for number in numbers:
        for name in columns:
            check_first(planned_files, expected, name, number)
        enough_files = proofs.files_with_rows(planned_files, number)
        if enough_files is not None:
            count("files with enough rows that were proved")
            scans = tuple(SegmentScan(file) for file in enough_files.tolist())
            part = ScanPlan(planned_files.snapshot, predicate, scans, ())
            parts = read(table.scan().metadata, part, ("id",), threads=1)
            assert sum(map(len, parts)) >= number


def check_first(planned_files, expected, name, number):
    type = planned_files.snapshot.definition.schema.field(name).type
    keys, nulls = keys_of(expected, name), expected[name].null_count
    for descending, nulls_first in product((False, True), repeat=2):
        key = SortKey(name, descending, nulls_first, type)
        bound = proofs.threshold(planned_files, key, number)
        if bound is not None:
            count("bounds of the first rows that were proved")
            rows_within_bound = sum(
                (value >= bound) if descending else (value <= bound) for value in keys
            )
            assert rows_within_bound + nulls * nulls_first >= number, (key, bound)


@given(data=st.data())
@examples(60, 1500)
def test_proved_facts_are_true_of_the_rows(data):
    table, rows = data.draw(tables())
    for _ in range(6):
        check(table, rows, data.draw(predicates(table.schema, rows)), [1, 2, 5, 12])


def rows_of(day):
    ids = list(range(100 * day, 100 * day + 10))
    cities = [None if i % 4 == 0 else f"c{i % 3}" for i in ids]
    fares = [float("nan") if i == 205 else i / 2 for i in ids]
    return pa.table([ids, [day] * 10, cities, fares], schema=SCHEMA)


@pytest.fixture
def table():
    """Create a table of four files, a day each."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], options={"mdt.small.file.bytes": 0})
    for day in range(4):
        table.bulk_insert(rows_of(day))
    return table


def decoded(key, column):
    return None if key is None else values.decode(key, SCHEMA.field(column).type)


def totals(table, predicate):
    """Return the proved row count, null counts, and least and greatest values by column."""
    proved = proofs.totals(query_files(table, predicate), SCHEMA.names)
    if proved is None:
        return None
    least, most = (
        {name: decoded(key, name) for name, key in side.items()}
        for side in (proved.least, proved.most)
    )
    return proved.rows, proved.nulls, least, most


def test_without_deleted_rows_all_totals_are_proved(table):
    rows, nulls, least, most = totals(table, None)
    assert (rows, nulls) == (40, {"id": 0, "day": 0, "city": 12, "fare": 0})
    assert least == {"id": 0, "day": 0, "city": "c0", "fare": 0}
    assert np.isnan(most.pop("fare")) and most == {"id": 309, "day": 3, "city": "c2"}


def test_a_filter_that_each_file_passes_or_fails_as_a_whole_has_proved_totals(table):
    rows, _, least, _ = totals(table, Leaf("day", ">", 1))
    assert (rows, least["id"]) == (20, 200)
    assert totals(table, Leaf("id", ">", 204)) is None
    assert totals(table, Leaf("city", "<=", "c9")) is None, "null does not satisfy <="
    assert totals(table, Leaf("day", "in", (1, None))) is None, (
        "it is null for values not in the list"
    )
    for leaf in (Leaf("day", "in", (1, 2, 9, None)), Leaf("day", "!=", None)):
        assert not proofs.covered(query_files(table, leaf)).any()


def test_deleted_rows_are_not_counted_and_bounds_of_their_files_are_not_trusted(table):
    table.delete({"id": [0, 309, 101]})
    rows, nulls, least, most = totals(table, None)
    assert (rows, set(nulls)) == (37, {"id", "day", "fare"}), "a deleted row may have had no city"
    assert set(least) == {"city"} and set(most) == {"city", "fare"}, (
        "the third file, without deleted rows, has them"
    )
    _, _, least, most = totals(table, Leaf("day", "=", 2))
    assert (least["id"], most["id"]) == (200, 209)


def test_bounds_of_a_file_without_deleted_rows_prove_extremes_of_the_whole_table(table):
    table.delete({"id": [205]})
    _, _, least, most = totals(table, None)
    assert (least["id"], most["id"], most["day"]) == (0, 309, 3)
    assert "fare" not in most, "the row with its greatest value is deleted"


@pytest.mark.parametrize(
    ("column", "descending", "number", "expected"),
    [
        ("id", True, 9, 300),
        ("id", True, 10, 200),  # one row of the last file is deleted
        ("id", False, 10, 9),
        ("id", False, 11, 109),
        ("id", False, 40, None),
        ("city", False, 7, "c2"),
        ("city", False, 30, None),  # nulls are last
    ],
)
def test_the_threshold_of_the_first_rows_has_enough_rows_before_it(
    table, column, descending, number, expected
):
    table.delete({"id": [309]})
    key = SortKey(column, descending, False, SCHEMA.field(column).type)
    assert decoded(proofs.threshold(query_files(table, None), key, number), column) == expected


@pytest.mark.parametrize(
    ("column", "descending", "nulls_first", "value", "share"),
    [
        ("id", False, False, 9, 0.75),
        ("id", False, False, 105, 0.5),
        ("id", True, False, 300, 0.75),
        ("city", False, True, "a", 0),
        ("city", False, False, "a", 1),
    ],
)
def test_the_share_of_files_entirely_after_a_bound_is_computed(
    table, column, descending, nulls_first, value, share
):
    key = SortKey(column, descending, nulls_first, SCHEMA.field(column).type)
    bound = values.encode_one(pa.scalar(value, key.type))
    assert proofs.share_behind(query_files(table, None), key, bound) == share


@pytest.mark.parametrize(
    ("predicate", "rows", "files"),
    [
        (None, 15, 2),
        (None, 41, None),
        (Leaf("id", ">=", 105), 8, 1),  # all rows of the third file match
        (Leaf("fare", ">", 1.0), 25, 3),
    ],
)
def test_files_with_enough_matching_rows_are_chosen_if_statistics_prove_it(
    table, predicate, rows, files
):
    chosen = proofs.files_with_rows(query_files(table, predicate), rows)
    assert (chosen is None) == (files is None) and (chosen is None or len(chosen) == files)
