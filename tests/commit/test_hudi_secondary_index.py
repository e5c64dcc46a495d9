"""Hudi's secondary indexes, which commits of mdt maintain: they have the record keys of exactly the
live values of columns with a bitmap index.
"""

from __future__ import annotations

import datetime
import json
import random

import pyarrow as pa
import pytest
from counting import count
from worlds import MOR, survivors

import mdt
from mdt.commit import hudi_record_index
from mdt.commit.metadata_partitions import partitions_in
from mdt.hudi.index_definitions import DEFINITIONS
from mdt.hudi.metadata_table_files import group_of
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.key_indexes import load_key_indexes, split_key
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.keys import key_changes
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("n", pa.int32()),
        ("day", pa.date32()),
        ("price", pa.float64()),
    ]
)
ON = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.secondary.enable": "true",
    "mdt.services.auto": "false",
    "mdt.small.file.bytes": "10000",
}
CITIES = ("Oslo", "a$b", "\\", "\0", "", "São $ \\ Paulo", None)
EPOCH = datetime.date(1970, 1, 1)
INDEXED = ("city", "n", "day")


def rows(draw, number):
    return pa.Table.from_pylist(
        [
            {
                "id": f"k${n}",
                "city": draw.choice(CITIES),
                "n": draw.choice([None, -(2**31), 0, 7]),
                "day": draw.choice([None, datetime.date(2024, 1, 15), datetime.date(1969, 12, 31)]),
                "price": draw.random(),
            }
            for n in draw.sample(range(60), number)
        ],
        SCHEMA,
    )


def create(kind=MOR, version=9, columns=(*INDEXED, "price"), **options):
    storage = MemoryStorage()
    return storage, mdt.create(
        storage,
        SCHEMA,
        ["id"],
        table_type=kind,
        version=version,
        indexes=[f"bitmap({name})" for name in columns],
        options=ON | options,
    )


def active_partitions(storage):
    return partitions_in(read_properties(storage))


def partition(column):
    return f"secondary_index_{column}"


def by_hudi(storage, column):
    """Return the values and the keys in the index, sorted."""
    indexes = load_key_indexes(storage)
    keys = indexes.records(indexes.secondary[column].name)["key"].to_pylist()
    assert len(keys) == len(set(keys))
    return sorted(map(split_key, keys), key=repr)


def by_us(table, column):
    """Return the texts of values and the keys in the table, sorted."""
    pairs = []
    for row in table.scan(columns=["id", column]).to_arrow().to_pylist():
        value = row[column]
        if isinstance(value, datetime.date):
            value = (value - EPOCH).days
        pairs.append((None if value is None else str(value), row["id"]))
    return sorted(pairs, key=repr)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_indexes_have_each_value_after_every_commit(kind):
    draw = random.Random(kind)
    storage, table = create(kind)
    for turn in range(40):
        step = draw.choice(
            [
                *[lambda: table.upsert(rows(draw, draw.randrange(1, 15)))] * 3,
                lambda: table.delete(rows(draw, 6)),
                lambda: table.update_where({"n": "n + 1"}, "n < 4"),
                lambda: table.insert_overwrite(rows(draw, 9)),
                table.compact,
                lambda: table.cluster(["price"]),
                lambda: table.clean(retain_commits=2),
                lambda: table.restore(max(1, table.snapshot().seq - draw.randrange(3))),
            ]
        )
        if table.snapshot().seq:
            step()
        else:
            table.upsert(rows(draw, 30))
        for column in INDEXED:
            assert by_hudi(storage, column) == by_us(table, column), turn
        count("states of secondary indexes")
    assert active_partitions(storage) == {
        "files",
        "column_stats",
        "record_index",
        *map(partition, INDEXED),
    }
    assert table.check().ok
    folder = f".hoodie/metadata/{partition('n')}"
    assert any(".log." not in i.path for i in storage.list(folder)), "it was not compacted"


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_commit_reads_changed_rows_once_for_all_indexes_and_copied_rows_never(kind, monkeypatch):
    draw = random.Random(5)
    _, table = create(kind)
    table.upsert(rows(draw, 50))
    reads, original_read = [], key_changes._read

    def counted(metadata, definition, segment, chosen, schema):
        if len(schema) > 1:
            reads.append((sorted(schema.names[1:]), int(chosen.sum())))
        return original_read(metadata, definition, segment, chosen, schema)

    monkeypatch.setattr(key_changes, "_read", counted)
    old = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    changed = rows(draw, 7)
    replaced = len({*changed["id"].to_pylist()} & {*old})
    table.upsert(changed)
    assert reads == [(sorted(INDEXED), replaced), (sorted(INDEXED), 7)]
    reads.clear()
    table.cluster(["price"])
    if kind == MOR:
        table.upsert(rows(draw, 1))
        reads.clear()
        table.compact()
    assert reads == []
    assert table.check().ok


def test_an_index_follows_the_bitmap_indexes_and_the_options():
    draw = random.Random(1)
    storage, table = create()
    table.upsert(rows(draw, 20))
    assert {*definitions(storage)} >= {*map(partition, INDEXED)}
    assert partition("price") not in active_partitions(
        storage
    )  # it is not known how Hudi writes floats
    table.drop_index("n")
    table.upsert(rows(draw, 20))
    assert partition("n") not in active_partitions(storage) and partition("n") not in definitions(
        storage
    )
    assert by_hudi(storage, "city") == by_us(table, "city")
    table.create_index("bitmap(n)")
    table.upsert(rows(draw, 9))
    assert by_hudi(storage, "n") == by_us(table, "n")
    table.alter(rename={"city": "town"}, rewrite=True)
    table.upsert(rows(draw, 20).rename_columns(["id", "town", "n", "day", "price"]))
    assert active_partitions(storage) & {partition("city"), partition("town")} == {
        partition("town")
    }
    assert {*definitions(storage)} & {partition("city"), partition("town")} == {partition("town")}
    assert by_hudi(storage, "town") == by_us(table, "town")
    table.alter(options={"mdt.hudi.secondary.index": False})
    table.upsert(rows(draw, 20).rename_columns(["id", "town", "n", "day", "price"]))
    assert active_partitions(storage) == {"files", "column_stats", "record_index"}
    assert not any("secondary" in name for name in definitions(storage))
    table.alter(options={"mdt.hudi.secondary.index": True})
    assert by_hudi(storage, "town") == by_us(table, "town") and table.check().ok


def test_dropping_an_index_does_not_change_the_others():
    def bases():
        listed = storage.list(".hoodie/metadata")
        return {info.path for info in listed if info.path.endswith(".hfile")}

    storage, table = create()
    table.upsert(rows(random.Random(1), 20))
    before = bases()
    table.drop_index("n")
    table.upsert(rows(random.Random(2), 20))
    assert partition("n") not in active_partitions(storage) and partition("n") not in definitions(
        storage
    )
    assert bases() == {path for path in before if partition("n") not in path}


def test_secondary_indexes_are_removed_with_the_record_index(monkeypatch):
    off = {"hoodie.metadata.index.column.stats.enable": "false"}
    storage, table = create(**off)
    table.upsert(rows(random.Random(1), 20))
    table.alter(options={"mdt.hudi.record.index": False})
    table.upsert(rows(random.Random(2), 5))
    assert active_partitions(storage) == {"files"}
    assert not any("secondary" in name for name in definitions(storage))
    monkeypatch.setattr(hudi_record_index, "HUDI_RECORD_INDEX_ROWS_MAX", table.scan().count() + 2)
    table.alter(options={"mdt.hudi.record.index": True})  # the table would soon lose it again
    table.upsert(rows(random.Random(2), 5))
    assert active_partitions(storage) == {"files"} and table.check().ok


def test_indexes_are_left_out_if_a_commit_changes_entries_of_too_many_bytes(monkeypatch):
    storage, table = create()
    monkeypatch.setattr(key_changes, "HFILE_ENTRIES_BYTES_MAX", 200)
    table.upsert(rows(random.Random(1), 9))
    assert active_partitions(storage) >= {*map(partition, INDEXED)}
    table.upsert(rows(random.Random(2), 60))
    assert (
        active_partitions(storage) == {"files", "column_stats", "record_index"} and table.check().ok
    )


@pytest.mark.parametrize("content", ["[[1, 2]]", "[[null, 2]]", "[1]", "3", '{"a": 1}'])
def test_a_damaged_file_of_definitions_is_replaced(content):
    storage, table = create()
    table.upsert(rows(random.Random(1), 9))
    storage.replace(DEFINITIONS, f'{{"indexDefinitions": {content}}}'.encode())
    table.upsert(rows(random.Random(2), 9))
    assert {*definitions(storage)} >= {"record_index", *map(partition, INDEXED)}
    assert table.check().ok


def definitions(storage):
    return json.loads(storage.read(DEFINITIONS))["indexDefinitions"]


def test_tables_of_version_6_have_no_secondary_indexes():
    storage, table = create(version=6)
    table.upsert(rows(random.Random(1), 20))
    assert active_partitions(storage) == {"files", "record_index"}


def test_an_index_is_left_out_if_a_value_is_too_long_for_it():
    storage, table = create()
    table.upsert(rows(random.Random(1), 20))
    table.upsert([{"id": "long", "city": "x" * 40_000}], partial=True)
    assert partition("city") not in active_partitions(storage)
    assert partition("city") not in definitions(storage)
    assert by_hudi(storage, "n") == by_us(table, "n") and table.check().ok


def test_check_reports_rows_that_an_index_lacks_and_repair_removes_it():
    storage, table = create()
    table.upsert(rows(random.Random(1), 9))
    table.upsert([{"id": "k$1", "n": 7}], partial=True)
    deletion = hfile_entries.deletions(pa.array([rb"7$k\$1"], pa.large_binary()))
    folder = f".hoodie/metadata/{partition('n')}"
    log = max(info.path for info in storage.list(folder) if ".log." in info.path)
    stored = storage.read(log)
    spoiled = group_of(partition("n")).log_file(deletion, table.snapshot().last_instant)
    storage.replace(log, stored + spoiled)
    [problem] = table.check().problems
    assert "rows without a record" in problem.text and r"k\\$1" in problem.text
    assert table.repair().ok
    table.upsert(rows(random.Random(3), 9))
    assert by_hudi(storage, "n") == by_us(table, "n")


def test_a_crash_at_any_change_of_a_commit_is_repaired_by_the_next_writer():
    def start():
        storage, table = create(columns=["n"])
        for number in range(3):
            table.upsert(rows(random.Random(number), 6))
        return storage

    def run(storage):
        mdt.open(storage).upsert(rows(random.Random(4), 9))

    for where, survivor in survivors(start, run):
        mdt.open(survivor).abort()
        table = mdt.open(survivor)
        table.upsert(rows(random.Random(5), 9))
        assert by_hudi(survivor, "n") == by_us(table, "n"), where
        assert table.check().ok, where
        count("crashes of commits with secondary indexes")
