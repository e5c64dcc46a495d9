"""DataFrames as sources of merges, partial upserts and rows marked as deleted, in tasks and in
process.
"""

import pyarrow as pa
import pytest
from sql_tables import IN_TASKS, sound, stored
from texts import columns

import mdt
from mdt.errors import Invalid

SCHEMA = columns("id string, city string, ts int64, n int32 not null, note string")
MIXED = """select 'k1' id, 'y' city, 6L ts, cast(null as int) n, true _hoodie_is_deleted
    union all select 'k2', 'x', 4L, null, true
    union all select 'z', 'x', 4L, null, true
    union all select 'k3', 'y', 7L, 30, null
    union all select 'n', 'x', 1L, 5, false"""


@pytest.fixture(params=["spark", "arrow"])
def engine(request):
    """Engine that writes a frame: Spark tasks, or Arrow in process."""
    return str(request.param)


def filled(folder, engine, *columns, **more):
    rows = [
        {"id": f"k{i}", "city": "xy"[i % 2], "ts": 5, "n": i, "note": f"n{i}"} for i in range(10)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA).select(columns or SCHEMA.names)
    stored(folder, table, partition_by="city", ordering="ts", **more)
    return mdt.open(folder, IN_TASKS if engine == "spark" else None)


def rows(table):
    """Return the rows by their keys, without their cities."""
    stored_rows = sound(table.path).drop(["city"]).to_pylist()
    return {row.pop("id"): tuple(row.values()) for row in stored_rows}


def test_a_data_frame_is_merged_with_all_kinds_of_clauses(spark, tmp_path, engine):
    table = filled(tmp_path, engine, scope="table")
    frame = spark.sql(
        """select 'k1' key, 'x' city, 6L ts, 10 n, 'moved' note
           union all select 'k2', 'x', 1L, 20, 'falls' union all select 'k3', 'y', 6L, 0, 'gone'
           union all select 'k4', 'x', 6L, 0, 'read' union all select 'k77', 'y', 6L, 7, 'new'
           union all select 'k78', 'y', 6L, 7, 'left out'"""
    )
    merge = table.merge(frame, "source.key = target.id")
    merge = merge.when_matched("source.note = 'gone'").delete()
    sums = {"n": "source.n + target.n", "ts": "source.ts", "city": "source.city"}
    merge = merge.when_matched("source.n > target.n").update(sums)
    new = {"id": "source.key", "city": "source.city", "ts": "source.ts", "n": 5}
    merge = merge.when_not_matched("source.note = :new", params={"new": "new"}).insert(new)
    merge = merge.when_not_matched_by_source("target.n in (4, 9)").delete()
    merge = merge.when_not_matched_by_source("target.n = 8").update({"city": "'y'", "ts": 1})
    result = merge.execute()
    assert (result.updated, result.inserted, result.deleted, result.source_rows) == (3, 1, 2, 6)
    assert (result.engine, result.files_scanned) == (engine, 2)
    by_key = rows(table)
    assert [by_key.get(key) for key in ("k1", "k2", "k3", "k4", "k8", "k9", "k77", "k78")] == [
        (6, 11, "n1"),
        (1, 22, "n2"),
        None,
        (5, 4, "n4"),
        (1, 8, "n8"),
        None,
        (6, 5, None),
        None,
    ]
    assert (table.get("k1")["city"], table.get("k8")["city"]) == ("x", "y")


def test_partial_rows_are_upserted(spark, tmp_path, engine):
    table = filled(tmp_path, engine)
    frame = spark.sql(
        """select 'k1' id, 'y' city, 6L ts, 10 n union all select 'k1', 'y', 7L, 20
           union all select 'k2', 'x', 1L, 5 union all select 'k77', 'y', 6L, 7"""
    )
    result = table.upsert(frame, partial=True, mergers={"n": "sum"})
    assert (result.updated, result.inserted, result.late, result.engine) == (2, 1, 0, engine)
    by_key = rows(table)
    assert (by_key["k1"], by_key["k2"], by_key["k77"]) == (
        (7, 31, "n1"),
        (5, 7, "n2"),
        (6, 7, None),
    )
    again = table.upsert(spark.sql("select 'k1' id, 'y' city, 'here' note"), partial=True)
    assert (again.updated, again.engine, rows(table)["k1"]) == (1, engine, (7, 31, "here"))
    with pytest.raises(Invalid, match="the data lack city"):
        table.upsert(spark.sql("select 'k1' id, 'here' note"), partial=True)


def test_under_table_scope_partial_upserts_in_tasks_find_the_partition_by_key(spark, tmp_path):
    table = filled(tmp_path, "spark", scope="table")
    frame = spark.sql("select 'k1' id, 9L ts, 'here' note union all select 'k2', 9L, 'there'")
    result = table.upsert(frame, partial=True)
    assert (result.updated, result.inserted, result.engine) == (2, 0, "spark")
    by_key = rows(table)
    assert by_key["k1"] == (9, 1, "here") and by_key["k2"] == (9, 2, "there")


def test_rows_of_a_data_frame_marked_as_deleted_delete_keys(spark, tmp_path, engine):
    names, keeps = SCHEMA.names[:4], {"mdt.delete.keeps.ordering": True}
    table = filled(tmp_path, engine, *names, options=keeps)
    result = table.upsert(spark.sql(MIXED))
    assert (result.inserted, result.updated, result.deleted, result.late, result.missing) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert result.engine == engine
    expected = {f"k{i}": (5, i) for i in range(10) if i != 1} | {"k3": (7, 30), "n": (1, 5)}
    assert rows(table) == expected
    late = [{"id": "k1", "city": "y", "ts": 5, "n": 1}, {"id": "z", "city": "x", "ts": 3, "n": 1}]
    result = table.upsert(late)
    assert (result.inserted, result.late, rows(table)) == (0, 2, expected)


def test_loads_of_a_data_frame_skip_rows_marked_as_deleted(named, tmp_path):
    arguments = {"partition_by": "city", "ordering": "ts"}
    mdt.create(tmp_path / "a", pa.schema(list(SCHEMA)[:4]), "id", **arguments)
    table = mdt.open(tmp_path / "a", IN_TASKS)
    assert table.bulk_insert(named.sql(MIXED)).inserted == 2 == len(sound(table.path))
    writer = named.sql(MIXED).write.format("mdt").options(key="id", **arguments)
    writer.mode("append").save(str(tmp_path / "b"))
    assert sorted(sound(tmp_path / "b").column_names) == sorted(SCHEMA.names[:4])
    assert mdt.open(tmp_path / "b").scan().count() == 2
    assert table.insert_overwrite(named.sql(MIXED)).inserted == 2


def test_a_merge_honours_delete_marks_and_uses_the_newest_row_of_a_key(spark, tmp_path, engine):
    table = filled(tmp_path, engine, *SCHEMA.names[:4])
    twice = spark.sql(
        f"""{MIXED} union all select 'k4', 'x', 7L, 70, false
            union all select 'k4', 'x', 8L, 80, false union all select 'k5', 'y', 9L, 0, true
            union all select 'k5', 'y', 8L, 7, false"""
    )
    with pytest.raises(Invalid, match="dedupe=True"):
        table.merge(twice).when_matched().update("*").execute()
    merge = table.merge(twice, dedupe=True).when_matched("source.ts > target.ts").update("*")
    result = merge.when_not_matched().insert().execute()
    assert (result.inserted, result.updated, result.deleted) == (1, 2, 2)
    unchanged = {f"k{i}": (5, i) for i in range(10) if i not in (1, 5)}
    assert rows(table) == unchanged | {"k3": (7, 30), "k4": (8, 80), "n": (1, 5)}
