"""Tables written by earlier versions are read, checked and written like new ones."""

import zipfile

import make
import pyarrow as pa
import pytest
from reader import bag, hudi_table

import mdt
from indexes.predicate import matches
from mdt.filters.where import parse_where
from mdt.schema.declared import stored_schema

FOLDERS = (make.OLDER, make.FOLDER)
BYTES_MAX = 1 << 20
"""Limit on all golden tables of a version, which stay in the repository permanently."""
TABLES = {file.stem: file for folder in FOLDERS for file in sorted(folder.glob("*.zip"))}
FILTERS_OF_TYPES = (
    "u8 = 203",
    "at > '2026-04-10' and not flag",
    "dec in (1.009, -5.998) or i16 is null",
    "enum = 'a' and f64 > 0",
)
FILTERS = (
    "status = 'lost' and n between 50 and 300",
    "match(note, 'glove')",
    "note like '%umbr%' or status is null",
    "at.zip = 'z3' and fare < 60",
    "day = '2026-01-20' or id = 'id_007'",
    "fare > 1e9",
    "city = 'Lima'",
    "id like 'id_01%'",
)
"""Filters that use column statistics, each index, keys and partitions."""
NOT_OF_HUDI_RS = [
    "map",
    "struct",
    "fixed_list",
    "list",
    "clock",
    "clock64",
    "wait",
    "local",
    "at_s",
    "nano",
    "day64",
]
"""Columns that hudi-rs returns as stored values. tests/schema/test_declared.py compares those.
"""
BEYOND_HUDI = ("altered_beyond_hudi",)
"""Tables with older files that Hudi's readers, which ignore schema versions, read incorrectly.
"""


def unpack(name, folder):
    """Unpack a table into a folder and return its expected rows."""
    with zipfile.ZipFile(TABLES[name]) as packed:
        packed.extractall(folder)
    with pa.OSFile(str(TABLES[name].with_suffix(".arrow"))) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.fixture(params=sorted(TABLES))
def golden(request, tmp_path):
    """The name of each table, a folder with a copy, and its expected rows."""
    return request.param, tmp_path, unpack(request.param, tmp_path)


def assert_found_by_key(table, rows):
    names = list(table.definition.key)
    if not table.definition.is_global:
        names += table.definition.partition_by
    assert bag(table.get(rows.select(names))) == bag(rows)


def test_every_table_has_the_expected_rows_and_indexes_and_passes_the_check(golden):
    name, folder, rows = golden
    table = mdt.open(folder)
    assert table.schema.equals(rows.schema, check_metadata=True)
    assert bag(table.scan().to_arrow()) == bag(rows)
    for text in FILTERS_OF_TYPES if name == "types" else FILTERS:
        expected_ids = rows["id"].filter(matches(parse_where(text, rows.schema), rows)).to_pylist()
        ids = table.scan(text, columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(ids) == sorted(expected_ids), text
    report = table.check()
    assert report.ok and report.rows == rows.num_rows, report
    assert_found_by_key(table, rows)


def test_every_table_can_be_rekeyed(golden):
    _, folder, rows = golden
    table = mdt.open(folder, {"mdt.rollback.after.seconds": 0})
    before = table.definition.key_hash
    table.rekey()
    table = mdt.open(folder)
    assert table.definition.key_hash != before
    assert_found_by_key(table, rows)
    assert table.check().ok and table.upsert(rows).updated == rows.num_rows


def test_hudi_rs_reads_the_same_rows(golden):
    name, folder, rows = golden
    if name in BEYOND_HUDI:  # rewrites all files of older schema versions
        table = mdt.open(folder)
        table.upsert(table.scan().to_arrow())
        table.compact()
        rows = table.scan().to_arrow()
    comparable_schema = pa.schema(
        [field for field in rows.schema if field.name not in NOT_OF_HUDI_RS]
    )
    assert stored_schema(comparable_schema).names == comparable_schema.names
    assert bag(hudi_table(folder, comparable_schema)) == bag(rows.select(comparable_schema.names))


def test_every_table_accepts_writes_and_services(golden):
    name, folder, rows = golden
    table = mdt.open(folder, {"mdt.rollback.after.seconds": 0})
    updated_rows = rows.slice(0, rows.num_rows // 2)
    new_row = {"id": 45} if name == "types" else make.row(900)
    counts = table.upsert(
        pa.concat_tables([updated_rows, pa.Table.from_pylist([new_row], rows.schema)])
    )
    assert (counts.inserted, counts.updated, counts.late) == (1, updated_rows.num_rows, 0)
    table.build_indexes()
    table.compact()
    assert table.delete(updated_rows).deleted == updated_rows.num_rows
    assert table.scan().count() == rows.num_rows - updated_rows.num_rows + 1
    assert table.check().ok
    assert all(cover == 100 for cover in table.indexes()["coverage"].to_pylist())


def test_a_tagged_snapshot_before_the_horizon_and_archived_history_can_be_read(tmp_path):
    unpack("aged", tmp_path)
    table = mdt.open(tmp_path)
    retention, seqs = table.snapshot().retention, dict(table.snapshot().tags.seqs)
    assert seqs["loaded"] < retention.first < retention.horizon <= seqs["saved"]
    loaded = pa.Table.from_pylist([make.row(i) for i in range(40)], schema=make.SCHEMA)
    assert bag(table.scan(as_of="loaded").to_arrow()) == bag(loaded)
    lost = loaded["status"].to_pylist().count("lost")
    assert table.scan("status = 'lost'", as_of="loaded").count() == lost
    history = table.history()["operation"].to_pylist()
    assert len(history) == table.snapshot().seq + 1
    assert {"bulk_insert", "tag", "savepoint", "cluster", "clean"} <= set(history)
    table.restore("loaded")
    assert bag(table.scan().to_arrow()) == bag(loaded) and table.check().ok


def test_the_golden_tables_have_the_operations_they_are_named_for_and_are_small(tmp_path):
    """Otherwise, the tests of a table would not test its feature."""
    operations, objects = set(), {}
    for name in ("compacted", "indexed", "rolled_back"):
        unpack(name, tmp_path / name)
        operations |= set(mdt.open(tmp_path / name).history()["operation"].to_pylist())
        objects[name] = [str(path) for path in (tmp_path / name).rglob("*")]
    assert {"bulk_insert", "upsert", "delete", "compact", "rollback"} <= operations
    assert {"create_index", "drop_index", "rebuild_index"} <= operations
    assert any(".manifest" in path for path in objects["compacted"])
    assert any("/pending/" in path for path in objects["rolled_back"])
    assert len(TABLES) == 18
    for folder in FOLDERS:
        assert sum(file.stat().st_size for file in folder.iterdir()) < BYTES_MAX
