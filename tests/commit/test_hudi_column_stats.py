"""Column statistics in Hudi's metadata table, which commits of mdt maintain for exactly the stored
files.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from metadata_tables import publish_again
from partition_bounds import require_bounds_of_partitions
from worlds import COW, MOR, SCHEMA, VERSION, history, make, rows

import mdt
from mdt.commit import hudi_column_stats, hudi_metadata
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.errors import Corrupt
from mdt.hudi import column_stats_records, metadata_table_state
from mdt.hudi.column_stats_records import FORMS, FileKeys
from mdt.hudi.file_names import BASE, LOG
from mdt.hudi.index_definitions import DEFINITIONS
from mdt.hudi.metadata_table_files import COLUMN_STATS, GROUPS
from mdt.hudi.read import hfile_entries, metadata_state
from mdt.hudi.read.column_statistics import column_statistics, comparable
from mdt.hudi.read.index_partition import IndexPartition
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import MemoryStorage

FOLDER = ".hoodie/metadata/column_stats"
ON = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "mdt.services.auto": "false",
}
META = {"_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"}


def table_with_option(kind=MOR, schema=SCHEMA, **options):
    storage = MemoryStorage()
    return storage, make(storage, kind, "record", schema, **{**ON, **options})


def stored_paths(storage):
    """Return the paths of data files in storage, by name."""
    paths_by_name = {}
    for info in storage.list(""):
        name = info.path.rpartition("/")[2]
        if not info.path.startswith(".hoodie") and (BASE.fullmatch(name) or LOG.fullmatch(name)):
            paths_by_name[name] = info.path
    return paths_by_name


def statistics(storage):
    """Return the statistics that our reader of Hudi tables reads: file -> column -> statistics."""
    timeline = load_timeline(storage, load_properties(storage))
    partition = IndexPartition(storage, load_metadata_table(storage), timeline, COLUMN_STATS)
    by_file = {}
    names = {*stored_paths(storage), "another.parquet"}
    for (name, column), stats in column_statistics(partition, names).items():
        by_file.setdefault(name, {})[column] = stats
    return by_file


def partitions(storage):
    return (read_properties(storage) or {}).get(PARTITIONS, "").split(",")


def check_bounds(storage, *, files=None):
    """Require statistics of all columns for each file, and bounds of base files that contain their
    rows.
    """
    by_file, paths_by_name = statistics(storage), stored_paths(storage)
    assert by_file.keys() == (paths_by_name.keys() if files is None else files)
    fields = json.loads(storage.read(DEFINITIONS))["indexDefinitions"][COLUMN_STATS]["sourceFields"]
    for name, columns in by_file.items():
        assert columns.keys() == set(fields)
        if not name.endswith(".parquet"):
            continue
        data = pq.read_table(pa.BufferReader(storage.read(paths_by_name[name])))
        for column, stats in columns.items():
            if column not in data.column_names:
                assert stats.nulls == stats.rows == len(data) and stats.low is None
                continue
            values = data[column]
            assert (stats.rows, stats.nulls) == (len(data), values.null_count)
            if values.null_count < len(values):
                low, high = stats.bounds(values.type)
                extremes = pc.min_max(values)
                assert low <= comparable(extremes["min"]) <= comparable(extremes["max"]) <= high


@pytest.mark.parametrize("version", FORMS)
@pytest.mark.parametrize("kind", [MOR, COW])
def test_each_stored_file_has_bounds_after_every_commit_of_a_random_history(kind, version):
    storage, table = table_with_option(kind, **{VERSION: str(version)})
    for _ in history(table, kind, 24, retain=2):
        check_bounds(storage)
    assert partitions(storage) == ["column_stats", "files"]
    assert table.check().ok


@pytest.mark.parametrize("kind", [MOR, COW])
def test_bounds_of_partitions_contain_their_rows_after_every_commit(kind, monkeypatch):
    monkeypatch.setattr(metadata_table_state, "_LOGS_MAX", 12)
    on = {"hoodie.metadata.index.partition.stats.enable": "true", VERSION: "9"}
    storage, table = table_with_option(kind, **on)
    values = 0
    for _ in history(table, kind, 24, retain=2):
        values += require_bounds_of_partitions(storage, table)
    assert values > 1_000
    assert partitions(storage) == ["column_stats", "files", "partition_stats"]
    bases = storage.list(".hoodie/metadata/partition_stats")
    assert any(i.path.endswith(".hfile") and "00000000000000" not in i.path for i in bases)
    assert table.check().ok
    table.upsert(rows([1], 99, float("nan")))  # a file without usable bounds
    assert partitions(storage) == ["files"]


def test_bounds_of_partitions_are_merged_less_often_than_the_listing_of_files():
    on = {"hoodie.metadata.index.partition.stats.enable": "true", VERSION: "9"}
    storage, table = table_with_option(MOR, **on)
    for ts in range(14):
        table.upsert(rows(range(6), ts, 1.0))

    def merged(partition):
        listed = storage.list(f".hoodie/metadata/{partition}")
        return [i.path for i in listed if i.path.endswith(".hfile") and "_00000000" not in i.path]

    assert merged("files") and not merged("partition_stats")


def test_bounds_of_partitions_are_left_out_if_a_table_has_a_binary_column():
    on = {"hoodie.metadata.index.partition.stats.enable": "true", VERSION: "9"}
    storage, table = table_with_option(COW, SCHEMA.append(pa.field("raw", pa.binary())), **on)
    table.upsert(rows(range(6), 1, 1.0), partial=True)
    assert partitions(storage) == ["column_stats", "files"]


@pytest.mark.parametrize(("version", "index_version"), [(6, "V1"), (9, "V2")])
def test_hudi_finds_the_definition_of_the_index(version, index_version):
    storage, table = table_with_option(**{VERSION: str(version)})
    other = {"indexName": "of another"}
    storage.replace(DEFINITIONS, json.dumps({"indexDefinitions": {"x": other}}).encode())
    table.upsert(rows(range(6), 1, 1.0))
    properties = read_properties(storage)
    definitions = json.loads(storage.read(properties["hoodie.table.index.defs.path"]))
    assert definitions["indexDefinitions"]["x"] == other
    assert definitions["indexDefinitions"]["column_stats"] == {
        "indexName": "column_stats",
        "indexType": "column_stats",
        "indexFunction": "column_stats",
        "sourceFields": [*sorted(META), "id", "city", "ts", "fare"],
        "indexOptions": {},
        "version": index_version,
    }


def test_hudi_indexes_32_columns_unless_some_are_chosen():
    fields = [*SCHEMA, *(pa.field(f"c{n}", pa.int32()) for n in range(40))]
    schema = pa.schema([*fields, pa.field("tags", pa.list_(pa.string()))])
    _, table = table_with_option(schema=schema)
    indexed = hudi_column_stats.columns(table.snapshot().definition)
    assert list(indexed) == schema.names[:32]
    options = {"mdt.column.stats.columns": "c39,tags,ts"}
    _, table = table_with_option(schema=schema, **options)
    assert list(hudi_column_stats.columns(table.snapshot().definition)) == ["ts", "c39"]


def test_a_file_with_nan_has_no_statistics():
    storage, table = table_with_option(COW)
    table.upsert(rows(range(6), 1, 1.0))
    names = set(stored_paths(storage))
    table.insert(rows([40], 1, float("nan")))
    files = stored_paths(storage)
    with_nan = {
        name
        for name, path in files.items()
        if pc.any(pc.is_nan(pq.read_table(pa.BufferReader(storage.read(path)))["fare"])).as_py()
    }
    assert names & statistics(storage).keys() and with_nan
    check_bounds(storage, files=files.keys() - with_nan)
    assert table.check().ok


@pytest.mark.parametrize("kind", [MOR, COW])
def test_the_partition_is_left_out_in_version_9_while_a_live_file_has_nan(kind, monkeypatch):
    """Hudi's writers would derive bounds of the whole partition from the other files."""
    monkeypatch.setattr(hudi_metadata, "_COMMITS_PER_TRY", 1)
    storage, table = table_with_option(kind, **{VERSION: "9"})
    table.upsert(rows(range(6), 1, 1.0))
    check_bounds(storage)
    table.upsert(rows([4], 2, float("nan")))
    assert partitions(storage) == ["files"] and not storage.list(FOLDER)
    instants = storage.list(".hoodie/metadata/.hoodie/timeline")
    table.upsert(rows([1], 3, 1.0))
    assert len(storage.list(".hoodie/metadata/.hoodie/timeline")) == len(instants) + 3
    assert partitions(storage) == ["files"]
    assert table.check().ok
    table.upsert(rows([4], 4, 1.0))
    table.compact()
    table.upsert(rows([1], 5, 1.0))
    assert partitions(storage) == ["column_stats", "files"]
    assert table.check().ok


def test_few_commits_read_all_files_to_restore_statistics_that_were_left_out(monkeypatch):
    storage, table = table_with_option(**{VERSION: "9"})
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows([4], 2, float("nan")))
    from_snapshot, tried_seqs = hudi_column_stats.Bounds.from_snapshot, []

    def counted(snapshot, definition):
        tried_seqs.append(snapshot.seq)
        return from_snapshot(snapshot, definition)

    monkeypatch.setattr(hudi_column_stats.Bounds, "from_snapshot", counted)
    monkeypatch.setattr(hudi_metadata, "_COMMITS_PER_TRY", 5)
    for ts in range(3, 9):
        table.upsert(rows([1], ts, 1.0))
    assert tried_seqs == [4]
    assert partitions(storage) == ["files"] and table.check().ok


def test_a_table_without_partitions_keeps_statistics_of_files_without_nan_in_version_9():
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key="id", options={**ON, VERSION: "9"})
    table.insert(rows(range(6), 1, 1.0))
    table.insert(rows([40], 1, float("nan")))
    assert partitions(storage) == ["column_stats", "files"]
    assert len(statistics(storage)) == 1 < len(stored_paths(storage))


def test_a_rebuilt_partition_has_statistics_of_all_files_or_is_left_out(monkeypatch):
    storage, table = table_with_option(**{VERSION: "9"})
    table.upsert(rows(range(6), 1, 1.0))
    with monkeypatch.context() as patch:  # a process that keeps no metadata table
        patch.setattr(hudi_metadata, "keep", lambda *arguments: None)
        table.upsert(rows([4], 2, float("nan")))
    assert partitions(storage) == ["column_stats", "files"]
    table.upsert(rows([1], 3, 1.0))
    assert partitions(storage) == ["files"]
    assert table.check().ok


def test_older_files_have_nulls_in_an_added_column():
    storage, table = table_with_option()
    table.upsert(rows(range(6), 1, 1.0))
    table.alter(add={"extra": pa.int32()})
    check_bounds(storage)
    more = rows(range(3), 2, 1.0).append_column("extra", pa.array([7, 8, None], pa.int32()))
    table.upsert(more)
    assert {columns["extra"].high for columns in statistics(storage).values()} >= {None, 8}
    table.compact()
    table.clean(retain_commits=1)
    check_bounds(storage)
    assert table.check().ok


@pytest.mark.parametrize(
    "change",
    [
        {"rename": {"fare": "price"}},
        {"add": {"extra": pa.int32()}, "defaults": {"extra": 3}},
    ],
    ids=["renamed", "default"],
)
def test_older_files_whose_rows_hudi_reads_differently_have_no_statistics(change):
    storage, table = table_with_option()
    table.upsert(rows(range(6), 1, 1.0))
    older = set(stored_paths(storage))
    table.alter(**change, beyond_hudi=True)
    assert statistics(storage) == {}
    table.upsert(table.scan().to_arrow())
    assert statistics(storage).keys() == stored_paths(storage).keys() - older
    assert table.check().ok


def test_decimals_of_many_digits_have_bounds_in_version_9():
    schema = pa.schema([*SCHEMA, pa.field("n", pa.decimal128(38, 2))])
    storage, table = table_with_option(schema=schema)
    assert "n" not in hudi_column_stats.columns(table.snapshot().definition)
    values = pa.array([10**35 * (n - 3) for n in range(6)], pa.decimal128(38, 2))
    table.upsert(rows(range(6), 1, 1.0).append_column("n", values))
    check_bounds(storage)
    table.upgrade(9)
    table.upsert(rows(range(3), 2, 1.0).append_column("n", values[:3]))
    check_bounds(storage)
    assert {columns["n"].kind for columns in statistics(storage).values()} == {(10, "38,2")}
    assert table.check().ok


def test_widened_columns_have_bounds_of_the_new_type():
    schema = pa.schema([*SCHEMA, pa.field("n", pa.int32())])
    storage, table = table_with_option(schema=schema)
    table.upsert(rows(range(6), 1, 1.0).append_column("n", pa.array(range(6), pa.int32())))
    table.alter(widen={"n": pa.int64()})
    by_file = statistics(storage)
    assert by_file.keys() == stored_paths(storage).keys()
    assert table.check().ok


def test_the_partition_follows_the_option():
    storage, table = table_with_option(**{"hoodie.metadata.index.column.stats.enable": "false"})
    table.upsert(rows(range(6), 1, 1.0))
    assert partitions(storage) == ["files"]
    table.alter(options={"mdt.hudi.column.stats": True})
    check_bounds(storage)
    table.alter(options={"mdt.column.stats.columns": "ts"})
    assert {column for columns in statistics(storage).values() for column in columns} == META | {
        "ts"
    }
    table.alter(options={"mdt.hudi.column.stats": False})
    assert partitions(storage) == ["files"] and not storage.list(FOLDER)
    assert table.check().ok


def test_instants_have_the_fields_of_all_partitions():
    """Hudi's compaction would drop the others."""
    storage, table = table_with_option()
    table.upsert(rows(range(6), 1, 1.0))
    instant = storage.read(f".hoodie/metadata/.hoodie/{table.snapshot().last_instant}.deltacommit")
    schema = json.loads(json.loads(instant)["extraMetadata"]["schema"])
    names = {field["name"] for field in schema["fields"]}
    for group in GROUPS.values():
        assert {field["name"] for field in json.loads(group.schema)["fields"]} <= names


@pytest.mark.parametrize("version", FORMS)
def test_publishing_again_writes_the_same_bytes(version):
    _, table = table_with_option(**{VERSION: str(version)})
    for ts in range(13):
        table.upsert(rows([ts % 4], ts, 1.0))
    assert publish_again(table) == 5


def test_a_partition_that_cannot_be_built_is_left_out(monkeypatch):
    storage, table = table_with_option()
    table.upsert(rows([1], 1, 1.0))

    def fail(*arguments):
        raise Corrupt("statistics are damaged")

    with monkeypatch.context() as patch:
        patch.setattr(hudi_column_stats, "record_entries", fail)
        table.upsert(rows([1], 2, 1.0))
    table.upsert(rows([1], 3, 1.0))
    assert partitions(storage) == ["files"]
    table.alter(options={"mdt.small.file.bytes": 20_000})
    check_bounds(storage)


def test_check_reports_wrong_statistics_and_repair_removes_them():
    storage, table = table_with_option()
    table.upsert(rows(range(6), 1, 1.0))
    [path, _] = sorted(stored_paths(storage).values())
    folder, _, name = path.rpartition("/")
    deletions = column_stats_records.deletions(
        FORMS[6], FileKeys.from_files([folder], [name]), "ts"
    )
    [log] = [info.path for info in storage.list(FOLDER) if ".log." in info.path]
    spoiled = GROUPS[COLUMN_STATS].log_file(
        hfile_entries.sort([deletions]), table.snapshot().last_instant
    )
    storage.replace(log, storage.read(log) + spoiled)
    [problem] = table.check().problems
    assert "other column statistics" in problem.text and name in problem.text
    report = table.repair()
    assert not report.lost and table.check().ok
    assert partitions(storage) == [""]
    table.upsert(rows(range(6), 2, 1.0))
    check_bounds(storage)


def test_the_metadata_table_stays_small_over_many_commits():
    storage, table = table_with_option()
    sizes = []
    for ts in range(90):
        table.upsert(rows([ts % 4], ts, 1.0))
        if ts % 10 == 9:
            table.compact()
            table.clean(retain_commits=1)
        sizes.append(len(storage.list(metadata_state.FOLDER)))
    assert max(sizes[60:]) <= max(sizes[:60]) <= 240, "objects of the metadata table"
    check_bounds(storage)
