"""Rows marked as deletes (``_hoodie_is_deleted``) in every kind of write, as Hudi's writers handle
them.
"""

import pyarrow as pa
import pytest
from merges import NEW_ALL, merged
from pooled import EVERY_KIND
from reader import agreed
from texts import columns, rows_of

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import LocalStorage

MARK = "_hoodie_is_deleted"
SCHEMA = columns("id string, city string, ts int64, v int64 not null")


MARKED = columns("id string, city string, ts int64, v int64, _hoodie_is_deleted bool")


def filled_table(path, kind=mdt.Table, **more):
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], ordering="ts", **more)
    table.upsert(rows_of(SCHEMA, "a Oslo 5 1", "b Oslo 5 2", "c Rome 5 3"))
    return kind(LocalStorage(path, durable=False))


def assert_readers_see(table, *rows):
    agreed(table, expected=rows_of(SCHEMA, *rows))


MIXED = rows_of(
    MARKED,
    "a Oslo 6 - true",
    "b Oslo 4 - true",
    "z Oslo 1 - true",
    "c Rome 6 33 -",
    "n Oslo 2 7 false",
    "n Oslo 1 - true",
    "m Oslo 1 8 false",
    "m Oslo 2 - true",
)


@EVERY_KIND
@pytest.mark.parametrize(
    "more",
    [{}, {"table_type": "COPY_ON_WRITE"}, {"scope": "table"}, {"key_index": "record"}],
    ids=str,
)
def test_marked_rows_of_an_upsert_delete_unless_they_are_late(tmp_path, kind, more):
    table = filled_table(tmp_path, kind, **more)
    result = table.upsert(MIXED)
    assert (result.inserted, result.updated, result.deleted, result.late, result.missing) == (
        1,
        1,
        1,
        3,
        2,
    )
    assert_readers_see(table, "b Oslo 5 2", "c Rome 6 33", "n Oslo 2 7")


@EVERY_KIND
def test_marked_rows_leave_tombstones_if_deletes_keep_their_ordering(tmp_path, kind):
    table = filled_table(tmp_path, kind, options={"mdt.delete.keeps.ordering": True})
    table.upsert(rows_of(MARKED, "a Oslo 9 - true", "z Oslo 9 - true"))
    late = table.upsert(rows_of(SCHEMA, "a Oslo 8 1", "z Oslo 8 1"))
    assert (late.inserted, late.late) == (0, 2)
    later_result = table.upsert(rows_of(SCHEMA, "a Oslo 9 1", "z Oslo 10 1"))
    assert (later_result.inserted, later_result.late) == (2, 0)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_marked_rows_of_an_insert_delete_and_other_rows_are_inserted(tmp_path, operation):
    table = filled_table(tmp_path)
    result = getattr(table, operation)(rows_of(MARKED, "a Oslo 6 - true", "n Oslo 1 4 -"))
    assert (result.inserted, result.deleted) == (1, 1)
    with pytest.raises(Invalid, match="takes new keys only"):
        getattr(table, operation)(rows_of(MARKED, "b Oslo 6 1 false"))
    assert_readers_see(table, "b Oslo 5 2", "c Rome 5 3", "n Oslo 1 4")


@EVERY_KIND
def test_bulk_inserts_into_empty_tables_and_overwrites_skip_marked_rows(tmp_path, kind):
    mdt.create(tmp_path / "new", SCHEMA, ["id"], partition_by=["city"], ordering="ts")
    data = rows_of(MARKED, "a Oslo 6 - true", "n Oslo 1 4 -", "c Rome 9 - true")
    result = kind(LocalStorage(tmp_path / "new", durable=False)).bulk_insert(data)
    assert (result.inserted, result.deleted, result.missing) == (1, 0, 2)
    table = filled_table(tmp_path / "t", kind)
    result = table.insert_overwrite(data)
    assert (result.inserted, result.deleted) == (1, 2)
    assert_readers_see(table, "c Rome 5 3", "n Oslo 1 4")


def test_marked_rows_can_be_combined_with_evolve_and_partial(tmp_path):
    table = filled_table(tmp_path)
    data = MIXED.append_column("more", pa.array(range(len(MIXED))))
    assert table.upsert(data, evolve=True).deleted == 1
    assert table.schema.names == [*SCHEMA.names, "more"]
    part = pa.table({"id": ["b", "n"], "city": ["Oslo", "Oslo"], "ts": [9, 9], MARK: [True, None]})
    result = table.upsert(part, partial=True)
    assert (result.deleted, result.updated) == (1, 1)
    rows = table.scan("city = 'Oslo'", columns=["id", "ts", "v"]).to_arrow().to_pylist()
    assert rows == [{"id": "n", "ts": 9, "v": 7}]


@EVERY_KIND
def test_marked_rows_of_a_merge_delete_matches_and_are_not_inserted(tmp_path, kind):
    table = filled_table(tmp_path, kind)
    source = ("a Oslo 6 1 true", "b Oslo 6 22 -", "n Oslo 1 4 true", "k Oslo 1 4 false")
    newer = ("matched", "source.ts > target.ts", "*")
    result = merged(table, rows_of(MARKED, *source), newer, NEW_ALL)
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 1)
    assert_readers_see(table, "b Oslo 6 22", "c Rome 5 3", "k Oslo 1 4")


def test_a_writer_commits_marked_and_unmarked_rows_together(tmp_path):
    table = filled_table(tmp_path)
    with table.writer(max_seconds=60) as writer:
        futures = [
            writer.upsert(rows_of(SCHEMA, "k Oslo 1 1")),
            writer.upsert(rows_of(MARKED, "a Oslo 6 - true", "k Oslo 2 - true")),
        ]
    assert futures[0].result() is futures[1].result() and futures[0].result().deleted == 1
    assert_readers_see(table, "b Oslo 5 2", "c Rome 5 3")


def test_rows_given_as_dicts_can_be_marked(tmp_path):
    key = {"city": "Oslo", "ts": 6}
    result = filled_table(tmp_path).upsert(
        [{"id": "a", MARK: True, **key}, {"id": "b", "v": 3, **key}]
    )
    assert (result.deleted, result.updated) == (1, 1)


def test_invalid_delete_markers_are_refused(tmp_path):
    table = filled_table(tmp_path)
    texts = MIXED.set_column(4, MARK, pa.array(["true"] * len(MIXED)))
    for write in (table.upsert, table.merge):
        with pytest.raises(Invalid, match="must be boolean, but is string"):
            write(texts)
    with pytest.raises(Unsupported, match="mergers cannot be combined with the delete marker"):
        table.upsert(MIXED, mergers={"v": "sum"})
    with pytest.raises(Invalid, match="'v' is required"):
        table.upsert(rows_of(MARKED, "k Oslo 1 - false", "a Oslo 9 - true"))
    with pytest.raises(Invalid, match="'id' is null"):
        table.upsert(rows_of(MARKED, "- Oslo 1 - true"))
    assert table.scan().count() == 3


@EVERY_KIND
def test_with_repeated_keys_a_marked_row_deletes_all_rows_of_its_key(tmp_path, kind):
    options = {"mdt.keys.repeat": True}
    mdt.create(tmp_path, SCHEMA, ["id"], partition_by=["city"], options=options)
    table = kind(LocalStorage(tmp_path, durable=False))
    with pytest.raises(Unsupported, match=r"insert\(check=False\) does not apply delete markers"):
        table.insert(MIXED, check=False)
    for v in range(3):
        table.insert(rows_of(SCHEMA, f"a Oslo 1 {v}"), check=False)
    assert table.upsert(rows_of(MARKED, "a Oslo 1 - true")).deleted == 3
    assert table.scan().count() == 0
