"""What statistics prove is true of the rows: sums, where the first rows end, files with enough
rows; against the rows themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import QUIET, tables

import mdt
from indexes import values
from indexes.predicate import And, Leaf, Predicate, matches
from indexes.testing import predicates
from mdt.filters.order import SortKey
from mdt.plan import proofs
from mdt.plan.planner import ScanPlan, SegmentScan, plan
from mdt.plan.proofs import Kept
from mdt.scan.reader import read

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.int32()), ("city", pa.string()), ("fare", pa.float64())]
)


def planned(table: mdt.Table, predicate: Predicate | None) -> Kept:
    scan = table.scan()
    found = Kept.of(plan(scan.metadata, scan.snapshot, predicate))
    if predicate is None:
        everything = Kept.everything(scan.snapshot)
        assert everything.files.tolist() == found.files.tolist()
    return found


def keys_of(rows: pa.Table, column: str) -> list[bytes]:
    return [key for key in values.encode(rows[column]).to_pylist() if key is not None]


def check(table: mdt.Table, rows: pa.Table, predicate: Predicate, numbers: list[int]) -> None:
    """Compare everything that is proved of the rows that match ``predicate`` with these rows."""
    found = planned(table, predicate)
    expected = rows.filter(matches(predicate, rows))
    stored = found.snapshot.definition.schema
    columns = [
        name
        for name in rows.schema.names
        if stored.field(name).type == rows.schema.field(name).type
    ]
    totals = proofs.totals(found, columns)
    if totals is not None:
        count("totals that were proved")
        assert totals.rows == len(expected)
        assert totals.nulls == {name: expected[name].null_count for name in totals.nulls}
        assert totals.least == {
            name: min(keys_of(expected, name), default=None) for name in totals.least
        }
        assert totals.most == {
            name: max(keys_of(expected, name), default=None) for name in totals.most
        }
    for number in numbers:
        for name in columns:
            check_first(found, expected, name, number)
        few = proofs.enough(found, number)
        if few is not None:
            count("files with enough rows that were proved")
            scans = tuple(SegmentScan(file) for file in few.tolist())
            tables = list(
                read(
                    table.scan().metadata,
                    ScanPlan(found.snapshot, predicate, scans, ()),
                    ("id",),
                    threads=1,
                )
            )
            assert sum(map(len, tables)) >= number


def check_first(found: Kept, expected: pa.Table, name: str, number: int) -> None:
    for descending, nulls_first in ((False, False), (False, True), (True, False), (True, True)):
        key = SortKey(
            name, descending, nulls_first, found.snapshot.definition.schema.field(name).type
        )
        bound = proofs.threshold(found, key, number)
        if bound is not None:
            count("bounds of the first rows that were proved")
            near = sum(
                (one >= bound) if descending else (one <= bound) for one in keys_of(expected, name)
            )
            assert near + (expected[name].null_count if nulls_first else 0) >= number, (key, bound)


@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_what_is_proved_is_true_of_the_rows(data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    for _ in range(6):
        check(table, rows, data.draw(predicates(table.schema, rows)), [1, 2, 5, 12])


@pytest.mark.nightly
@given(data=st.data())
@settings(max_examples=1500, **QUIET)
def test_what_is_proved_is_true_of_the_rows_often(data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    for _ in range(6):
        check(table, rows, data.draw(predicates(table.schema, rows)), [1, 2, 5, 12])


def rows_of(day: int, n: int = 10) -> pa.Table:
    ids = list(range(100 * day, 100 * day + n))
    cities = [None if i % 4 == 0 else f"c{i % 3}" for i in ids]
    return pa.table(
        [ids, [day] * n, cities, [float("nan") if i == 205 else i / 2 for i in ids]], schema=SCHEMA
    )


@pytest.fixture
def table(tmp_path: Path) -> mdt.Table:
    """Four files, a day each."""
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"], options={"mdt.small.file.bytes": 0})
    for day in range(4):
        table.bulk_insert(rows_of(day))
    return table


def totals(table: mdt.Table, predicate: Predicate | None) -> proofs.Totals | None:
    return proofs.totals(planned(table, predicate), SCHEMA.names)


def value(found: proofs.Totals, side: str, column: str) -> Any:
    return values.decode(getattr(found, side)[column], SCHEMA.field(column).type)


def test_a_clean_table_answers_everything(table: mdt.Table) -> None:
    found = totals(table, None)
    assert (
        found is not None
        and found.rows == 40
        and found.nulls == {"id": 0, "day": 0, "city": 12, "fare": 0}
    )
    assert (value(found, "least", "id"), value(found, "most", "id")) == (0, 309)
    assert (value(found, "least", "city"), value(found, "most", "city")) == ("c0", "c2")
    assert np.isnan(value(found, "most", "fare"))


def test_a_condition_that_takes_files_as_wholes_is_answered(table: mdt.Table) -> None:
    found = totals(table, Leaf("day", ">", 1))
    assert found is not None and found.rows == 20 and value(found, "least", "id") == 200
    assert totals(table, Leaf("id", ">", 204)) is None
    assert totals(table, Leaf("city", "<=", "c9")) is None, "null is not below anything"
    assert totals(table, Leaf("day", "in", (1, None))) is None, "of other values it is null"


def test_a_null_among_literals_proves_nothing(table: mdt.Table) -> None:
    found = planned(table, Leaf("day", "in", (1, 2, 9, None)))
    assert not proofs.covered(found).any()
    assert not proofs.covered(planned(table, Leaf("day", "!=", None))).any()


def test_rows_that_died_are_not_counted_and_their_bounds_are_not_believed(table: mdt.Table) -> None:
    table.delete({"id": [0, 309, 101]})
    found = totals(table, None)
    assert found is not None and found.rows == 37
    assert set(found.nulls) == {"id", "day", "fare"}, "a row without a city may have died"
    assert set(found.least) == {"city"} and set(found.most) == {"city", "fare"}, (
        "the third file has them"
    )
    inner = totals(table, Leaf("day", "=", 2))
    assert inner is not None and (value(inner, "least", "id"), value(inner, "most", "id")) == (
        200,
        209,
    )


def test_a_clean_file_may_prove_what_a_dirty_one_cannot(table: mdt.Table) -> None:
    table.delete({"id": [205]})
    found = totals(table, None)
    assert found is not None
    assert (value(found, "least", "id"), value(found, "most", "id")) == (0, 309) and value(
        found, "most", "day"
    ) == 3
    assert "fare" not in found.most, "its greatest value has died"


def test_the_first_rows_end_where_enough_are_before(table: mdt.Table) -> None:
    table.delete({"id": [309]})
    found = planned(table, None)
    assert bound(found, "id", 9, descending=True) == 300
    assert bound(found, "id", 10, descending=True) == 200, "one of the last file has died"
    assert (
        bound(found, "id", 10) == 9
        and bound(found, "id", 11) == 109
        and bound(found, "id", 40) is None
    )
    assert bound(found, "city", 7) == "c2" and bound(found, "city", 30) is None, "nulls come last"


def test_files_behind_a_bound_are_counted(table: mdt.Table) -> None:
    found = planned(table, None)
    by_id, down = (SortKey("id", descending, False, pa.int64()) for descending in (False, True))
    assert proofs.behind(found, by_id, values.encode_one(pa.scalar(9))) == 0.75
    assert proofs.behind(found, by_id, values.encode_one(pa.scalar(105))) == 0.5
    assert proofs.behind(found, down, values.encode_one(pa.scalar(300))) == 0.75
    assert proofs.behind(found, SortKey("city", False, True, pa.string()), b"a") == 0, (
        "nulls come first"
    )
    assert proofs.behind(found, SortKey("city", False, False, pa.string()), b"a") == 1


def test_files_with_enough_rows_are_enough(table: mdt.Table) -> None:
    assert enough(table, None, 15) == 2 and enough(table, None, 41) is None
    assert enough(table, Leaf("id", ">=", 105), 8) == 1, "all of the third file match"
    assert enough(table, Leaf("fare", ">", 1.0), 25) == 3


def enough(table: mdt.Table, predicate: Predicate | None, rows: int) -> int | None:
    found = proofs.enough(planned(table, predicate), rows)
    return None if found is None else len(found)


def bound(found: Kept, column: str, number: int, *, descending: bool = False) -> Any:
    key = SortKey(column, descending, False, SCHEMA.field(column).type)
    at = proofs.threshold(found, key, number)
    return None if at is None else values.decode(at, key.type)


def test_a_mutant_that_takes_every_kept_file_for_covered_is_caught(
    monkeypatch: pytest.MonkeyPatch, table: mdt.Table
) -> None:
    rows, predicate = table.scan().to_arrow(), Leaf("id", ">", 204)
    check(table, rows, predicate, [1])
    monkeypatch.setattr(proofs, "covered", lambda found: np.ones(len(found.files), np.bool_))
    with pytest.raises(AssertionError):
        check(table, rows, predicate, [1])


def test_a_mutant_that_forgets_dead_rows_is_caught(
    monkeypatch: pytest.MonkeyPatch, table: mdt.Table
) -> None:
    table.delete({"id": [309]})
    rows, everything = table.scan().to_arrow(), And(())
    check(table, rows, everything, [10])
    summed = proofs._sum
    monkeypatch.setattr(
        proofs,
        "_sum",
        lambda told, column, stats, dirty, live: summed(told, column, stats, dirty & False, live),
    )
    with pytest.raises(AssertionError):
        check(table, rows, everything, [10])
