"""Rows that are marked as deletes (``_hoodie_is_deleted``), in every write, as Hudi's writers have
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


def made(path, kind=mdt.Table, **more):
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], ordering="ts", **more)
    table.upsert(rows_of(SCHEMA, "a Oslo 5 1", "b Oslo 5 2", "c Rome 5 3"))
    return kind(LocalStorage(path, durable=False))


def agree(table, *rows):
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
def test_marked_rows_of_an_upsert_delete_unless_they_come_late(tmp_path, kind, more):
    table = made(tmp_path, kind, **more)
    done = table.upsert(MIXED)
    assert (done.inserted, done.updated, done.deleted, done.late, done.missing) == (1, 1, 1, 3, 2)
    agree(table, "b Oslo 5 2", "c Rome 6 33", "n Oslo 2 7")


@EVERY_KIND
def test_marked_rows_leave_tombstones_where_the_table_keeps_them(tmp_path, kind):
    table = made(tmp_path, kind, options={"mdt.delete.keeps.ordering": True})
    table.upsert(rows_of(MARKED, "a Oslo 9 - true", "z Oslo 9 - true"))
    late = table.upsert(rows_of(SCHEMA, "a Oslo 8 1", "z Oslo 8 1"))
    assert (late.inserted, late.late) == (0, 2)
    again = table.upsert(rows_of(SCHEMA, "a Oslo 9 1", "z Oslo 10 1"))
    assert (again.inserted, again.late) == (2, 0)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_marked_rows_of_an_insert_delete_and_the_others_are_inserted(tmp_path, operation):
    table = made(tmp_path)
    done = getattr(table, operation)(rows_of(MARKED, "a Oslo 6 - true", "n Oslo 1 4 -"))
    assert (done.inserted, done.deleted) == (1, 1)
    with pytest.raises(Invalid, match="takes new keys only"):
        getattr(table, operation)(rows_of(MARKED, "b Oslo 6 1 false"))
    agree(table, "b Oslo 5 2", "c Rome 5 3", "n Oslo 1 4")


@EVERY_KIND
def test_loads_and_overwrites_leave_marked_rows_out(tmp_path, kind):
    mdt.create(tmp_path / "new", SCHEMA, ["id"], partition_by=["city"], ordering="ts")
    given = rows_of(MARKED, "a Oslo 6 - true", "n Oslo 1 4 -", "c Rome 9 - true")
    done = kind(LocalStorage(tmp_path / "new", durable=False)).bulk_insert(given)
    assert (done.inserted, done.deleted, done.missing) == (1, 0, 2)
    table = made(tmp_path / "t", kind)
    done = table.insert_overwrite(given)
    assert (done.inserted, done.deleted) == (1, 2)
    agree(table, "c Rome 5 3", "n Oslo 1 4")


def test_marked_rows_go_with_evolve_and_partial(tmp_path):
    table = made(tmp_path)
    data = MIXED.append_column("more", pa.array(range(len(MIXED))))
    assert table.upsert(data, evolve=True).deleted == 1
    assert table.schema.names == [*SCHEMA.names, "more"]
    part = pa.table({"id": ["b", "n"], "city": ["Oslo", "Oslo"], "ts": [9, 9], MARK: [True, None]})
    done = table.upsert(part, partial=True)
    assert (done.deleted, done.updated) == (1, 1)
    found = table.scan("city = 'Oslo'", columns=["id", "ts", "v"]).to_arrow().to_pylist()
    assert found == [{"id": "n", "ts": 9, "v": 7}]


@EVERY_KIND
def test_marked_rows_of_a_merge_delete_what_they_would_update_and_are_not_inserted(tmp_path, kind):
    table = made(tmp_path, kind)
    source = ("a Oslo 6 1 true", "b Oslo 6 22 -", "n Oslo 1 4 true", "k Oslo 1 4 false")
    newer = ("matched", "source.ts > target.ts", "*")
    done = merged(table, rows_of(MARKED, *source), newer, NEW_ALL)
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    agree(table, "b Oslo 6 22", "c Rome 5 3", "k Oslo 1 4")


def test_a_writer_gathers_rows_that_are_marked_and_rows_that_are_not(tmp_path):
    table = made(tmp_path)
    with table.writer(max_seconds=60) as writer:
        told = [
            writer.upsert(rows_of(SCHEMA, "k Oslo 1 1")),
            writer.upsert(rows_of(MARKED, "a Oslo 6 - true", "k Oslo 2 - true")),
        ]
    assert told[0].result() is told[1].result() and told[0].result().deleted == 1
    agree(table, "b Oslo 5 2", "c Rome 5 3")


def test_dicts_mark_deletes_too(tmp_path):
    key = {"city": "Oslo", "ts": 6}
    done = made(tmp_path).upsert([{"id": "a", MARK: True, **key}, {"id": "b", "v": 3, **key}])
    assert (done.deleted, done.updated) == (1, 1)


def test_what_cannot_be_a_mark_is_refused(tmp_path):
    table = made(tmp_path)
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
def test_in_tables_whose_keys_repeat_a_marked_row_deletes_all_rows_of_its_key(tmp_path, kind):
    options = {"mdt.keys.repeat": True}
    mdt.create(tmp_path, SCHEMA, ["id"], partition_by=["city"], options=options)
    table = kind(LocalStorage(tmp_path, durable=False))
    with pytest.raises(Unsupported, match=r"insert\(check=False\) does not apply delete markers"):
        table.insert(MIXED, check=False)
    for v in range(3):
        table.insert(rows_of(SCHEMA, f"a Oslo 1 {v}"), check=False)
    assert table.upsert(rows_of(MARKED, "a Oslo 1 - true")).deleted == 3
    assert table.scan().count() == 0
