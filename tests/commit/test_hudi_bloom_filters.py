"""The Bloom filters of base files in Hudi's metadata table: the filters from the footers of all
files.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting import count
from hidden import HiddenMetadata
from shared_tables import batch, other_table
from worlds import survivors

import mdt
from indexes import hudi_bloom
from mdt.commit.metadata_partitions import partitions_in
from mdt.hudi.column_stats_records import FileKeys
from mdt.hudi.metadata_table_files import GROUPS
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import Decode, IndexPartition, newest_rows
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import MemoryStorage

NAME = "bloom_filters"
ON = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "mdt.write.footer.bloom": "true",
    "mdt.hudi.column.stats": "false",
    "mdt.services.auto": "false",
}
kinds = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
versions = pytest.mark.parametrize("version", [6, 9])


def filters(storage):
    """Return key -> (kind, instant, filter)."""
    properties = load_properties(storage)
    timeline = load_timeline(storage, properties)
    index = IndexPartition(storage, load_metadata_table(storage), timeline, NAME)
    filters_by_key = {}
    for records in index.each(lambda group: group.records(HFile.all, DECODE)):
        records = records.take(newest_rows(records))
        for row in records.to_pylist():
            if not row["is_deleted"]:
                filters_by_key[row["key"]] = (row["type"], row["timestamp"], row["filter"])
    return filters_by_key


def _decoded(keys, values):
    return pa.table(
        {
            "key": keys,
            "is_deleted": values.field("isDeleted"),
            "type": values.field("type"),
            "timestamp": values.field("timestamp"),
            "filter": values.field("bloomFilter"),
        }
    )


DECODE = Decode("BloomFilterMetadata", _decoded)


def require_filters(storage):
    """Require a filter with the keys of each live base file, and no filter of a deleted file."""
    t = mdt.open(HiddenMetadata(storage))
    filters_by_key = filters(storage)
    files = t.files().to_pylist()
    base_files = [file for file in files if file["kind"] == BASE]
    assert base_files
    for file in base_files:
        folder, name = file["partition"], file["name"]
        [key] = FileKeys.from_files([folder], [name]).suffixes.to_pylist()
        kind, instant, data = filters_by_key.pop(key.decode())
        assert instant == name.rpartition("_")[2].partition(".")[0]
        keys = pq.read_table(pa.BufferReader(storage.read(paths.data_file(folder, name))))
        texts = keys["_hoodie_record_key"].combine_chunks()
        assert hudi_bloom.may_contain(data, kind, texts).all()
        count("Bloom filters of files in a metadata table")
    stored = {info.path for info in storage.list("") if info.path.endswith(".parquet")}
    split = [path.rpartition("/") for path in stored if not path.startswith(".hoodie")]
    stored_files = FileKeys.from_files(
        [folder for folder, *_ in split], [name for *_, name in split]
    ).suffixes
    assert {key.encode() for key in filters_by_key} <= {*stored_files.to_pylist()}, (
        "a filter of a file that is not stored"
    )


@versions
@kinds
def test_each_base_file_has_its_filter_after_every_commit(kind, version):
    draw, storage = random.Random(version), MemoryStorage()
    t = other_table(MemoryStorage(), kind, version).definition
    t = mdt.create(
        storage,
        t.schema,
        ["id"],
        partition_by=["city"],
        ordering="v",
        table_type=kind,
        version=version,
        options=ON,
    )
    for turn in range(24):
        rows = batch(draw.sample(range(90), 9), turn, draw.choice(["Oslo", "Rome"]))
        steps = [t.compact, t.clean, lambda: t.cluster(["v"]), lambda: t.delete_where("v < 3")]
        draw.choice([*[lambda rows=rows: t.upsert(rows)] * 4, *steps])()
        if t.snapshot().live_numbers.size:
            require_filters(storage)
    assert partitions_in(read_properties(storage)) == {"files", NAME} and t.check().ok


@versions
def test_a_shared_table_gets_filters_of_the_files_of_mdt(version):
    storage, draw = MemoryStorage(), random.Random(version)
    theirs = other_table(storage, "COPY_ON_WRITE", version, options=ON)
    theirs.upsert(batch(list(range(10)), 1))
    t = mdt.adopt(storage)
    for turn in range(8):
        t.upsert(batch(draw.sample(range(90), 9), turn, draw.choice(["Oslo", "Rome"])))
        require_filters(storage)
    assert partitions_in(read_properties(storage)) == {"files", NAME}


def test_the_partition_is_left_out_if_files_have_no_filters():
    storage = MemoryStorage()
    t = mdt.create(
        storage,
        pa.schema({"id": pa.string()}),
        ["id"],
        options=ON | {"mdt.write.footer.bloom": False},
    )
    t.upsert([{"id": "a"}])
    assert partitions_in(read_properties(storage)) == {"files"} and t.check().ok


@versions
def test_a_crash_at_any_change_of_a_commit_is_repaired_by_the_next_writer(version):
    def start():
        storage = MemoryStorage()
        other = other_table(MemoryStorage()).definition.schema
        t = mdt.create(storage, other, ["id"], version=version, options=ON)
        t.upsert(batch([1, 2], 1))
        return storage

    def run(storage):
        mdt.open(storage).upsert(batch([3, 4], 2))

    for where, survivor in survivors(start, run):
        mdt.open(survivor).abort()
        mdt.open(survivor).upsert(batch([5], 3))
        require_filters(survivor)
        count("crashes of commits with Bloom filters", bool(where))


@versions
@pytest.mark.parametrize("spoil", ["delete", "replace"])
def test_check_reports_wrong_filters_and_repair_removes_them(spoil, version):
    storage, schema = MemoryStorage(), pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = mdt.create(storage, schema, ["id"], version=version, options=ON)
    table.insert({"id": ["a"], "v": [1]})
    assert table.check().ok
    [name] = table.files()["name"].to_pylist()
    key = FileKeys.from_files([""], [name]).suffixes
    entries = hfile_entries.deletions(key)
    if spoil == "replace":
        values = pa.array([b"other"], pa.large_binary())
        entries = pa.record_batch([key, values], schema=entries.schema)
    log = max(
        info.path for info in storage.list(f".hoodie/metadata/{NAME}") if ".log." in info.path
    )
    spoiled = GROUPS[NAME].log_file(entries, table.snapshot().last_instant)
    storage.replace(log, storage.read(log) + spoiled)
    [problem] = table.check().problems
    assert "other Bloom filters, or none, of 1 base files" in problem.text
    assert not table.repair().lost and table.check().ok
    table.insert({"id": ["b"], "v": [2]})
    require_filters(storage)
