"""What statistics prove is true of the rows: sums, where the first rows end, files with enough
rows; against the rows themselves.
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


def planned(table, predicate):
    scan = table.scan()
    found = QueryFiles.from_plan(plan(scan.metadata, scan.snapshot, predicate))
    if predicate is None:
        everything = QueryFiles.all_files(scan.snapshot)
        assert everything.files.tolist() == found.files.tolist()
    return found


def keys_of(rows, column):
    return [key for key in values.encode(rows[column]).to_pylist() if key is not None]


def check(table, rows, predicate, numbers):
    """Compare everything that is proved of the rows that match ``predicate`` with these rows."""
    found = planned(table, predicate)
    expected = rows.filter(matches(predicate, rows))
    stored = found.snapshot.definition.schema
    columns = [field.name for field in rows.schema if stored.field(field.name).type == field.type]
    totals = proofs.totals(found, columns)
    if totals is not None:
        count("totals that were proved")
        assert totals.rows == len(expected)
        assert totals.nulls == {name: expected[name].null_count for name in totals.nulls}
        for side, pick in ((totals.least, min), (totals.most, max)):
            assert side == {name: pick(keys_of(expected, name), default=None) for name in side}
    for number in numbers:
        for name in columns:
            check_first(found, expected, name, number)
        few = proofs.files_with_rows(found, number)
        if few is not None:
            count("files with enough rows that were proved")
            scans = tuple(SegmentScan(file) for file in few.tolist())
            part = ScanPlan(found.snapshot, predicate, scans, ())
            parts = read(table.scan().metadata, part, ("id",), threads=1)
            assert sum(map(len, parts)) >= number


def check_first(found, expected, name, number):
    type = found.snapshot.definition.schema.field(name).type
    keys, nulls = keys_of(expected, name), expected[name].null_count
    for descending, nulls_first in product((False, True), repeat=2):
        key = SortKey(name, descending, nulls_first, type)
        bound = proofs.threshold(found, key, number)
        if bound is not None:
            count("bounds of the first rows that were proved")
            near = sum((one >= bound) if descending else (one <= bound) for one in keys)
            assert near + nulls * nulls_first >= number, (key, bound)


@given(data=st.data())
@examples(60, 1500)
def test_what_is_proved_is_true_of_the_rows(data):
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
    """Four files, a day each."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], options={"mdt.small.file.bytes": 0})
    for day in range(4):
        table.bulk_insert(rows_of(day))
    return table


def decoded(key, column):
    return None if key is None else values.decode(key, SCHEMA.field(column).type)


def totals(table, predicate):
    """Return the rows, the nulls, and the least and the greatest values that are proved."""
    found = proofs.totals(planned(table, predicate), SCHEMA.names)
    if found is None:
        return None
    least, most = (
        {name: decoded(key, name) for name, key in side.items()}
        for side in (found.least, found.most)
    )
    return found.rows, found.nulls, least, most


def test_a_clean_table_answers_everything(table):
    rows, nulls, least, most = totals(table, None)
    assert (rows, nulls) == (40, {"id": 0, "day": 0, "city": 12, "fare": 0})
    assert least == {"id": 0, "day": 0, "city": "c0", "fare": 0}
    assert np.isnan(most.pop("fare")) and most == {"id": 309, "day": 3, "city": "c2"}


def test_a_condition_that_takes_files_as_wholes_is_answered(table):
    rows, _, least, _ = totals(table, Leaf("day", ">", 1))
    assert (rows, least["id"]) == (20, 200)
    assert totals(table, Leaf("id", ">", 204)) is None
    assert totals(table, Leaf("city", "<=", "c9")) is None, "null is not below anything"
    assert totals(table, Leaf("day", "in", (1, None))) is None, "of other values it is null"
    for leaf in (Leaf("day", "in", (1, 2, 9, None)), Leaf("day", "!=", None)):
        assert not proofs.covered(planned(table, leaf)).any()


def test_rows_that_died_are_not_counted_and_their_bounds_are_not_believed(table):
    table.delete({"id": [0, 309, 101]})
    rows, nulls, least, most = totals(table, None)
    assert (rows, set(nulls)) == (37, {"id", "day", "fare"}), "a row without a city may have died"
    assert set(least) == {"city"} and set(most) == {"city", "fare"}, "the third file has them"
    _, _, least, most = totals(table, Leaf("day", "=", 2))
    assert (least["id"], most["id"]) == (200, 209)


def test_a_clean_file_may_prove_what_a_dirty_one_cannot(table):
    table.delete({"id": [205]})
    _, _, least, most = totals(table, None)
    assert (least["id"], most["id"], most["day"]) == (0, 309, 3)
    assert "fare" not in most, "its greatest value has died"


@pytest.mark.parametrize(
    ("column", "descending", "number", "expected"),
    [
        ("id", True, 9, 300),
        ("id", True, 10, 200),  # one of the last file has died
        ("id", False, 10, 9),
        ("id", False, 11, 109),
        ("id", False, 40, None),
        ("city", False, 7, "c2"),
        ("city", False, 30, None),  # nulls come last
    ],
)
def test_the_first_rows_end_where_enough_are_before(table, column, descending, number, expected):
    table.delete({"id": [309]})
    key = SortKey(column, descending, False, SCHEMA.field(column).type)
    assert decoded(proofs.threshold(planned(table, None), key, number), column) == expected


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
def test_files_behind_a_bound_are_counted(table, column, descending, nulls_first, value, share):
    key = SortKey(column, descending, nulls_first, SCHEMA.field(column).type)
    bound = values.encode_one(pa.scalar(value, key.type))
    assert proofs.share_behind(planned(table, None), key, bound) == share


@pytest.mark.parametrize(
    ("predicate", "rows", "files"),
    [
        (None, 15, 2),
        (None, 41, None),
        (Leaf("id", ">=", 105), 8, 1),  # all of the third file match
        (Leaf("fare", ">", 1.0), 25, 3),
    ],
)
def test_files_with_enough_rows_are_enough(table, predicate, rows, files):
    found = proofs.files_with_rows(planned(table, predicate), rows)
    assert (found is None) == (files is None) and (found is None or len(found) == files)
