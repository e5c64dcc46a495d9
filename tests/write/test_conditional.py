"""Deletes and updates by a condition: rows are found as a scan finds them, and end as one
commit.
"""

import pyarrow as pa
import pytest
from reader import agreed
from worlds import COW, MOR, as_state, meanwhile, rows

import mdt
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.write.conditional import Conditional

RARE = "fare = 2.0 or id in ('k1', 'k2')"


def filled(folder, table_type=MOR, ordering="ts", **more):
    """Return a table with two partitions; on merge-on-read each has a base and a log file."""
    table = mdt.create(
        folder / "t",
        rows([], 0, 0.0).schema,
        ["id"],
        partition_by=["city"],
        ordering=ordering,
        table_type=table_type,
        key_index="record",
        options={"mdt.durable": False, "mdt.services.auto": False, **more},
        indexes=["bitmap(fare)"],
    )
    table.upsert(rows(range(20), 1, 1.0))
    table.upsert(rows(range(0, 20, 3), 2, 2.0))
    return table


@pytest.mark.parametrize("table_type", [MOR, COW])
@pytest.mark.parametrize("positions", [False, True])
def test_rows_are_deleted_by_a_condition(tmp_path, table_type, positions):
    table = filled(tmp_path, table_type, **{"hoodie.write.record.positions": positions})
    expected = table.scan(f"not ({RARE})").to_arrow()
    before = table.snapshot().seq
    done = table.delete_where(RARE)
    assert (done.deleted, done.updated, done.seq) == (9, 0, before + 1)
    assert table.history()["operation"].to_pylist()[-1] == "delete_where"
    agreed(table, expected)
    assert table.changes(before).to_arrow()["_change"].to_pylist() == ["delete"] * 9
    for nothing in (RARE, "false", "fare = null", "not true"):
        assert table.delete_where(nothing).instant == "", "nothing is left to be committed"
        assert table.update_where({"fare": "0"}, nothing).updated == 0
    assert table.upsert(rows(range(3), 0, 0.0)).inserted == 3, (
        "keys that were deleted are new, whatever their ordering"
    )


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_rows_get_values_and_what_expressions_make_of_them(tmp_path, table_type, ordering):
    table = filled(tmp_path, table_type, ordering)
    before, seq = table.scan().to_arrow().to_pylist(), table.snapshot().seq
    done = table.update_where({"fare": "fare * 10 + ts"}, "fare = 2.0")
    assert (done.updated, done.deleted, done.inserted) == (7, 0, 0)
    expected = [row | ({"fare": 22.0} if row["fare"] == 2.0 else {}) for row in before]
    agreed(table, pa.Table.from_pylist(expected, schema=table.schema))
    told = table.changes(seq, mode="all").to_arrow()
    assert sorted(told["_change"].to_pylist()) == ["update_after"] * 7 + ["update_before"] * 7
    null = table.update_where(values={"fare": None}, where="id = :key", params={"key": "k4"})
    assert null.updated == 1 and table.get("k4")["fare"] is None
    assert table.update_where({"fare": "coalesce(fare, -1)"}).updated == 20
    assert sorted({row["fare"] for row in table.scan().to_arrow().to_pylist()}) == [-1.0, 1.0, 22.0]
    assert table.update_where({"ts": "ts - 5"}, "fare = 22").updated == 7
    assert table.upsert(rows([0], 0, 9.0)).updated == 1, "the ordering value that counts is the new"


@pytest.mark.parametrize(
    "asked, kind, why",
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
        ({"values": {"ts": "soon"}}, Invalid, "'soon' is not a valid value for the column 'ts'"),
        ({"values": {"fare": 1.0}, "set": {"fare": "2"}}, Invalid, "is set twice"),
        ({}, Invalid, "the update sets no column"),
        ({"set": {"fare": "1 / (ts - 1)"}}, Invalid, "division by zero"),
        ({"set": {"ts": "ts * 9223372036854775807"}}, Invalid, "overflow"),
    ],
)
def test_what_cannot_be_set_is_said_and_nothing_is_left(tmp_path, asked, kind, why):
    table = filled(tmp_path)
    before, files = table.scan().to_arrow(), sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(kind, match=why):
        table.update_where(where="fare > 0", **asked)
    agreed(table, before)
    assert files == sorted((tmp_path / "t").rglob("*"))


def test_of_two_updates_neither_misses_what_the_other_makes_of_a_row(tmp_path):
    """Without that, two updates of different rows could swap their values, which no order of them
    does.
    """
    table = filled(tmp_path)
    table.upsert(rows([0, 2], 3, 1.0))
    table.delete_where("id not in ('k0', 'k1')")  # of different partitions
    table.update_where(values={"fare": 2.0}, where="id = 'k1'")

    def back():
        other = mdt.open(table.storage)
        assert other.update_where(values={"fare": 1.0}, where="fare = 2.0").updated == 1

    with meanwhile(Conditional, back):
        table.update_where(values={"fare": 2.0}, where="fare = 1.0")
    assert {fare for _, fare in as_state(table.scan().to_arrow()).values()} == {2.0}


def test_a_condition_on_columns_that_are_altered_meanwhile_is_refused(tmp_path):
    table = filled(tmp_path)
    other = mdt.open(table.storage)
    with (
        pytest.raises(Conflict, match="altered"),
        meanwhile(Conditional, lambda: other.alter(rename={"fare": "price"}, beyond_hudi=True)),
    ):
        table.update_where(values={"fare": 5.0}, where="fare = 2.0")


def test_indexes_say_which_files_are_looked_into(tmp_path):
    table = filled(tmp_path)
    table.bulk_insert(rows(range(100, 120), 1, 50.0))
    assert table.update_where(values={"fare": 51.0}, where="fare = 50.0").updated == 20
    changed = set(table.files()["file_id"].to_pylist())
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and len(record.changed_groups) <= 2 < len(changed)
    assert table.scan("fare = 51").count() == 20
