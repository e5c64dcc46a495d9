"""Inserts without a key look-up (check=False), and operations on the repeated keys they create."""

from pathlib import Path

import pyarrow as pa
import pytest
from merges import merged
from pooled import EVERY_KIND
from reader import BY_POSITION, agreed, bag, hudi_table
from texts import rows_of
from worlds import COW, MOR, OPTIONS, SCHEMA, rows

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import MemoryStorage

REPEATS = {**OPTIONS, "mdt.keys.repeat": True}
MOVED = rows_of(SCHEMA, "k0 y 9 7")
"""A row of key k0, which is in x, with the partition y."""


def filled_table(path, table_type=MOR, kind=mdt.Table, **settings):
    """Return a table in which k0 and k1 exist three times, and k2 to k5 once."""
    arguments = {"partition_by": ["city"], "ordering": "ts", "options": REPEATS, **settings}
    table = kind(mdt.create(path, SCHEMA, ["id"], table_type=table_type, **arguments).storage)
    table.upsert(rows(range(6), 1, 1.0))
    for fare in (2.0, 3.0):
        result = table.insert(rows([0, 1, 1], 2, fare), check=False)
        assert (result.inserted, result.late) == (2, 1), "one row per key of a batch is inserted"
    return table


def assert_readers_see(table, *parts):
    """Assert that all readers see these rows and that check finds no problem."""
    expected = pa.concat_tables(parts)
    agreed(table, expected)
    if table.definition.is_mor:
        assert bag(hudi_table(Path(table.path), SCHEMA, BY_POSITION)) == bag(expected)


ALL = [rows(range(6), 1, 1.0), rows([0, 1], 2, 2.0), rows([0, 1], 2, 3.0)]


REST = [rows(range(1, 6), 1, 1.0), rows([1], 2, 2.0), rows([1], 2, 3.0)]
"""The rows of all keys except k0."""


@EVERY_KIND
@pytest.mark.parametrize(
    "table_type, scope, key_index",
    [
        (MOR, "partition", "bloom"),
        (COW, "table", "record"),
        pytest.param(COW, "partition", "bloom", marks=pytest.mark.nightly),
        pytest.param(MOR, "table", "record", marks=pytest.mark.nightly),
    ],
)
def test_an_upsert_replaces_and_a_delete_deletes_all_rows_of_a_key(
    tmp_path, table_type, scope, key_index, kind
):
    table = filled_table(tmp_path, table_type, kind, scope=scope, key_index=key_index)
    assert_readers_see(table, *ALL)
    assert table.upsert(rows([0], 1, 9.0)).late == 1, "one of the rows has a larger ordering value"
    result = table.upsert(rows([0, 20], 2, 9.0))
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 2)
    assert_readers_see(table, *REST, rows([0, 20], 2, 9.0))
    assert table.delete(rows([1, 7], 0, 0.0)).deleted == 3
    assert_readers_see(table, rows(range(2, 6), 1, 1.0), rows([0, 20], 2, 9.0))


@EVERY_KIND
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_with_keys_per_table_an_upsert_moves_all_rows_of_a_key(tmp_path, table_type, kind):
    table = filled_table(tmp_path, table_type, kind, scope="table")
    result = table.upsert(MOVED)
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 2)
    assert_readers_see(table, *REST, MOVED)
    assert table.insert(rows([0, 2], 5, 5.0), check=False).inserted == 2
    result = table.insert_overwrite(MOVED)
    assert (result.inserted, result.deleted) == (1, 7), "the rows of y and the rows of k0 in x"
    assert_readers_see(table, MOVED, rows([2, 4], 1, 1.0), rows([2], 5, 5.0))


@EVERY_KIND
def test_a_merge_updates_each_row_of_a_key_but_cannot_move_rows(tmp_path, kind):
    table = filled_table(tmp_path, scope="table", kind=kind)
    clause = ("matched", None, {"fare": "source.fare + target.fare"})
    assert merged(table, rows([0], 2, 9.0), clause).updated == 3
    assert_readers_see(table, *REST, rows([0], 1, 10.0), rows([0], 2, 11.0), rows([0], 2, 12.0))
    with pytest.raises(Unsupported, match="cannot move rows to another partition"):
        merged(table, MOVED)


def test_operations_that_need_unique_keys_are_refused_with_repeated_keys(tmp_path):
    table = filled_table(tmp_path)
    assert table.scan("id = 'k0'").count() == 3
    with pytest.raises(Invalid, match=r"1 keys exist in several rows: 'k0'"):
        table.get({"id": "k0", "city": "x"})
    with pytest.raises(Invalid, match="takes new keys only"):
        table.insert(rows([0], 9, 9.0))
    with pytest.raises(Unsupported, match="keys may repeat"):
        table.restore(1)
    with pytest.raises(Unsupported, match="requires unique keys"):
        table.changes(1, before=False)


def test_unchecked_inserts_need_a_table_created_with_repeated_keys():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=OPTIONS)
    with pytest.raises(Invalid, match=r"mdt.keys.repeat is false"):
        table.insert(rows([0], 1, 1.0), check=False)
    with pytest.raises(Invalid, match="fixed at creation"):
        mdt.open(table.storage, {"mdt.keys.repeat": True})
    with pytest.raises(Invalid, match="check takes True or False"):
        table.insert(rows([0], 1, 1.0), check=0)  # type: ignore[arg-type]


def test_an_unchecked_insert_looks_up_no_key(monkeypatch):
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], options=REPEATS)
    table.upsert(rows(range(6), 1, 1.0))
    monkeypatch.setattr("mdt.write.rules.locate", lambda *_: pytest.fail("a key was looked for"))
    assert table.insert(rows(range(3), 1, 1.0), check=False).inserted == 3
