"""Deletes and updates by a condition: rows are found as a scan finds them, and end as one
commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reader import bag, bag_of, hudi_table
from worlds import as_state, rows

import mdt
from mdt.commit.transaction import steps
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.filters.where import parse_where
from mdt.write.conditional import Conditional
from mdt.write.setting import setting

TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]
RARE = "fare = 2.0 or id in ('k1', 'k2')"


def filled(
    folder: Path, table_type: str = "MERGE_ON_READ", ordering: str | None = "ts", **more: Any
) -> mdt.Table:
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    options = {"mdt.durable": False, "mdt.services.auto": False, **more}
    table = mdt.create(
        folder / "t",
        rows([], 0, 0.0).schema,
        ["id"],
        partition_by=["city"],
        ordering=ordering,
        table_type=table_type,
        key_index="record",
        options=options,
        indexes=["bitmap(fare)"],
    )
    table.upsert(rows(range(20), 1, 1.0))
    table.upsert(rows(range(0, 20, 3), 2, 2.0))
    return table


def assert_agreed(table: mdt.Table, folder: Path, expected: pa.Table) -> None:
    """Assert that a new process, hudi-rs and check see what is expected."""
    assert (
        bag(mdt.open(folder / "t").scan().to_arrow())
        == bag(expected)
        == bag(hudi_table(folder / "t", table.schema))
    )
    report = mdt.open(folder / "t").check()
    assert report.ok, str(report)


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("positions", [False, True])
def test_rows_are_deleted_by_a_condition(tmp_path: Path, table_type: str, positions: bool) -> None:
    table = filled(tmp_path, table_type, **{"hoodie.write.record.positions": positions})
    expected = table.scan(f"not ({RARE})").to_arrow()
    before = table.snapshot().seq
    done = table.delete_where(RARE)
    assert (done.deleted, done.updated, done.seq) == (9, 0, before + 1)
    assert table.history()["operation"].to_pylist()[-1] == "delete_where"
    assert_agreed(table, tmp_path, expected)
    assert table.changes(before).to_arrow()["_change"].to_pylist() == ["delete"] * 9
    again = table.delete_where(RARE)
    assert (again.deleted, again.instant) == (0, ""), "nothing is left, so nothing is committed"
    assert table.upsert(rows(range(3), 0, 0.0)).inserted == 3, (
        "keys that were deleted are new, whatever their ordering"
    )
    table.compact()
    assert table.scan().count() == len(expected) + 3 and table.check().ok


@pytest.mark.parametrize("table_type", TYPES)
def test_without_a_condition_every_row_goes(tmp_path: Path, table_type: str) -> None:
    table = filled(tmp_path, table_type)
    assert table.delete_where(None).deleted == 20
    assert_agreed(table, tmp_path, table.schema.empty_table())
    assert table.insert(rows(range(5), 0, 1.0)).inserted == 5


def test_a_condition_that_holds_for_no_row_changes_none(tmp_path: Path) -> None:
    table = filled(tmp_path)
    for where in ("false", "fare = null", "not true"):
        assert (
            table.delete_where(where).instant == ""
            and table.update_where({"fare": "0"}, where).updated == 0
        )
    assert table.scan().count() == 20


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("table_type", TYPES)
def test_rows_get_values_and_what_expressions_make_of_them(
    tmp_path: Path, table_type: str, ordering: str | None
) -> None:
    table = filled(tmp_path, table_type, ordering)
    before, seq = table.scan().to_arrow().to_pylist(), table.snapshot().seq
    done = table.update_where({"fare": "fare * 10 + ts"}, "fare = 2.0")
    assert (done.updated, done.deleted, done.inserted) == (7, 0, 0)
    expected = [row | ({"fare": 22.0} if row["fare"] == 2.0 else {}) for row in before]
    assert_agreed(table, tmp_path, pa.Table.from_pylist(expected, schema=table.schema))
    told = table.changes(seq, mode="all").to_arrow()
    assert sorted(told["_change"].to_pylist()) == ["update_after"] * 7 + ["update_before"] * 7
    assert (
        table.update_where(values={"fare": None}, where="id = :key", params={"key": "k4"}).updated
        == 1
    )
    assert table.get("k4")["fare"] is None
    assert table.update_where({"fare": "coalesce(fare, -1)"}).updated == 20
    assert sorted({row["fare"] for row in table.scan().to_arrow().to_pylist()}) == [-1.0, 1.0, 22.0]
    assert table.scan("fare = 22").explain().files_read <= len(table.files())


@pytest.mark.parametrize("table_type", TYPES)
def test_ordering_values_may_fall_and_every_reader_sees_that(
    tmp_path: Path, table_type: str
) -> None:
    table = filled(tmp_path, table_type)
    before = table.scan().to_arrow().to_pylist()
    assert table.update_where({"ts": "ts - 5", "fare": "fare + 1"}, "ts = 2").updated == 7
    expected = [row | ({"ts": -3, "fare": 3.0} if row["ts"] == 2 else {}) for row in before]
    assert_agreed(table, tmp_path, pa.Table.from_pylist(expected, schema=table.schema))
    table.upsert(rows([0], 0, 9.0))
    assert table.get("k0")["fare"] == 9.0, "the ordering value that counts is the new one"


@pytest.mark.parametrize(
    ("asked", "kind", "why"),
    [
        ({"values": {"id": "x"}}, Invalid, "belongs to the key"),
        ({"set": {"city": "'x'"}}, Invalid, "belongs to the partition"),
        ({"set": {"far": "1"}}, Invalid, "there is no column 'far'"),
        ({"set": {"fare": "far"}}, Invalid, r"no column 'far'(.|\n)*did you mean fare"),
        ({"set": {"fare": "fare *"}}, Invalid, "something is missing"),
        ({"set": {"fare": "sum(fare)"}}, Unsupported, r"the function sum(.|\n)*coalesce"),
        ({"set": {"fare": "id"}}, Invalid, "fare"),
        ({"set": {"ts": "ts + 0.5"}}, Invalid, "ts"),
        ({"set": {"ts": "'x' || id"}}, Invalid, "ts"),
        ({"values": {"ts": "soon"}}, Invalid, "'soon' is no value of the column 'ts'"),
        ({"values": {"fare": 1.0}, "set": {"fare": "2"}}, Invalid, "is set twice"),
        ({}, Invalid, "nothing is set"),
        ({"set": {"fare": "1 / (ts - 1)"}}, Invalid, "divided by zero"),
        ({"set": {"ts": "ts * 9223372036854775807"}}, Invalid, "overflow"),
    ],
)
def test_what_cannot_be_set_is_said_and_nothing_is_left(
    tmp_path: Path, asked: Any, kind: type[Exception], why: str
) -> None:
    table = filled(tmp_path)
    before, files = table.scan().to_arrow(), sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(kind, match=why):
        table.update_where(where="fare > 0", **asked)
    assert_agreed(table, tmp_path, before)
    assert files == sorted((tmp_path / "t").rglob("*"))


def update(table: mdt.Table, where: str, **values: float) -> Conditional:
    given = setting(table.definition, values, {})
    asked = parse_where(where, table.schema)
    return Conditional(
        table.metadata, table.options, asked, table.schema, table.definition.commit_action, given
    )


def test_rows_that_change_meanwhile_are_looked_at_again(tmp_path: Path) -> None:
    table = filled(tmp_path)
    driver = steps(table.metadata, update(table, "fare = 2.0", fare=5.0))
    while next(driver) != "written":
        pass
    mdt.open(table.storage).upsert(rows([0], 3, 7.0))
    with pytest.raises(StopIteration) as ended:
        while True:
            next(driver)
    assert ended.value.value.attempts == 2
    found = as_state(table.scan().to_arrow())
    assert found["k0"] == (3, 7.0) and found["k3"] == (2, 5.0) and table.check().ok


def test_of_two_updates_neither_misses_what_the_other_makes_of_a_row(tmp_path: Path) -> None:
    """Without that, two updates of different rows could swap their values, which no order of them
    does.
    """
    table = filled(tmp_path)
    table.upsert(rows([0, 2], 3, 1.0))
    table.delete_where("id not in ('k0', 'k1')")  # of different partitions
    table.update_where(values={"fare": 2.0}, where="id = 'k1'")
    driver = steps(table.metadata, update(table, "fare = 1.0", fare=2.0))
    while next(driver) != "written":
        pass
    assert (
        mdt.open(table.storage).update_where(values={"fare": 1.0}, where="fare = 2.0").updated == 1
    )
    for _ in driver:
        pass
    assert {fare for _, fare in as_state(table.scan().to_arrow()).values()} == {2.0}


def test_a_condition_on_columns_that_are_altered_meanwhile_is_refused(tmp_path: Path) -> None:
    table = filled(tmp_path)
    operation = update(table, "fare = 2.0", fare=5.0)
    table.alter(rename={"fare": "price"}, beyond_hudi=True)
    with pytest.raises(Conflict, match="altered"):
        for _ in steps(table.metadata, operation):
            pass


def test_indexes_say_which_files_are_looked_into(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.bulk_insert(rows(range(100, 120), 1, 50.0))
    old = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t").rglob("*.parquet")}
    assert table.update_where(values={"fare": 51.0}, where="fare = 50.0").updated == 20
    changed = set(table.files()["file_id"].to_pylist())
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and len(record.changed_groups) <= 2 < len(changed)
    assert old.keys() <= {path.name for path in (tmp_path / "t").rglob("*.parquet")}
    assert bag_of(table.scan("fare = 51").to_arrow().to_pylist(), table.schema.names)
