"""delete_where and update_where: rows are selected as a scan selects them, and change in one
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


def filled_table(folder, table_type=MOR, ordering="ts", **more):
    """Return a table with two partitions. On merge-on-read each has a base and a log file."""
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
def test_delete_where_deletes_the_rows_that_a_scan_returns(tmp_path, table_type, positions):
    table = filled_table(tmp_path, table_type, **{"hoodie.write.record.positions": positions})
    expected = table.scan(f"not ({RARE})").to_arrow()
    before = table.snapshot().seq
    result = table.delete_where(RARE)
    assert (result.deleted, result.updated, result.seq) == (9, 0, before + 1)
    assert table.history()["operation"].to_pylist()[-1] == "delete_where"
    agreed(table, expected)
    assert table.changes(before).to_arrow()["_change"].to_pylist() == ["delete"] * 9
    for matches_no_row in (RARE, "false", "fare = null", "not true"):
        assert table.delete_where(matches_no_row).instant == "", "nothing is left to commit"
        assert table.update_where({"fare": "0"}, matches_no_row).updated == 0
    assert table.upsert(rows(range(3), 0, 0.0)).inserted == 3, (
        "deleted keys are new, whatever their ordering values"
    )


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_update_where_sets_values_and_results_of_expressions(tmp_path, table_type, ordering):
    table = filled_table(tmp_path, table_type, ordering)
    before, seq = table.scan().to_arrow().to_pylist(), table.snapshot().seq
    result = table.update_where({"fare": "fare * 10 + ts"}, "fare = 2.0")
    assert (result.updated, result.deleted, result.inserted) == (7, 0, 0)
    expected = [row | ({"fare": 22.0} if row["fare"] == 2.0 else {}) for row in before]
    agreed(table, pa.Table.from_pylist(expected, schema=table.schema))
    change_rows = table.changes(seq, mode="all").to_arrow()
    assert (
        sorted(change_rows["_change"].to_pylist()) == ["update_after"] * 7 + ["update_before"] * 7
    )
    null = table.update_where(values={"fare": None}, where="id = :key", params={"key": "k4"})
    assert null.updated == 1 and table.get("k4")["fare"] is None
    assert table.update_where({"fare": "coalesce(fare, -1)"}).updated == 20
    assert sorted({row["fare"] for row in table.scan().to_arrow().to_pylist()}) == [-1.0, 1.0, 22.0]
    assert table.update_where({"ts": "ts - 5"}, "fare = 22").updated == 7
    assert table.upsert(rows([0], 0, 9.0)).updated == 1, "the new ordering value counts"


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
def test_an_update_that_cannot_be_evaluated_raises_and_leaves_no_files(tmp_path, asked, kind, why):
    table = filled_table(tmp_path)
    before, files = table.scan().to_arrow(), sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(kind, match=why):
        table.update_where(where="fare > 0", **asked)
    agreed(table, before)
    assert files == sorted((tmp_path / "t").rglob("*"))


def test_of_two_concurrent_updates_one_sees_the_values_set_by_the_other(tmp_path):
    """Otherwise two updates of different rows could swap their values, which neither serial order
    does.
    """
    table = filled_table(tmp_path)
    table.upsert(rows([0, 2], 3, 1.0))
    table.delete_where("id not in ('k0', 'k1')")  # the remaining rows are in different partitions
    table.update_where(values={"fare": 2.0}, where="id = 'k1'")

    def set_back():
        other = mdt.open(table.storage)
        assert other.update_where(values={"fare": 1.0}, where="fare = 2.0").updated == 1

    with meanwhile(Conditional, set_back):
        table.update_where(values={"fare": 2.0}, where="fare = 1.0")
    assert {fare for _, fare in as_state(table.scan().to_arrow()).values()} == {2.0}


def test_a_condition_on_columns_altered_by_another_writer_meanwhile_raises(tmp_path):
    table = filled_table(tmp_path)
    other = mdt.open(table.storage)
    with (
        pytest.raises(Conflict, match="altered"),
        meanwhile(Conditional, lambda: other.alter(rename={"fare": "price"}, beyond_hudi=True)),
    ):
        table.update_where(values={"fare": 5.0}, where="fare = 2.0")


def test_update_where_uses_indexes_and_changes_only_matching_file_groups(tmp_path):
    table = filled_table(tmp_path)
    table.bulk_insert(rows(range(100, 120), 1, 50.0))
    assert table.update_where(values={"fare": 51.0}, where="fare = 50.0").updated == 20
    file_groups = set(table.files()["file_id"].to_pylist())
    record = table.metadata.record(table.snapshot().seq)
    assert record is not None and len(record.changed_groups) <= 2 < len(file_groups)
    assert table.scan("fare = 51").count() == 20
