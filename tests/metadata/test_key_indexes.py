"""Key indexes under their own names and Hudi's, and their effects on the layout of a table."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused
from texts import columns
from trees import TABLE_TYPES

import mdt
from indexes import hudi_bloom
from indexes.keys import bloom
from indexes.keys.bucket import BucketKeyIndex
from mdt.commit.conflicts import check
from mdt.config import INDEX_TYPES
from mdt.errors import Invalid, Unsupported
from mdt.hudi import bucket_config
from mdt.services.layout import split_groups
from mdt.stores.storage import MemoryStorage
from mdt.write.by_name import RowWrite

SCHEMA = columns("id string, city string, x double")


def rows(ids, x=0.0, cities=3):
    return pa.table(
        [[f"k{i:05d}" for i in ids], [f"c{i % cities}" for i in ids], [x] * len(ids)], schema=SCHEMA
    )


def create_table(**more):
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], **more)


@pytest.mark.parametrize("word", INDEX_TYPES)
def test_hudis_index_type_selects_key_index_and_scope(word):
    kind, scope = INDEX_TYPES[word]
    table = create_table(options={"hoodie.index.type": word})
    assert (table.definition.key_index.partition("(")[0], table.definition.scope) == (kind, scope)
    table.upsert(rows(range(30)))
    reopened = mdt.open(table.storage, {"hoodie.index.type": word})
    result = reopened.upsert(rows(range(20, 40), 1.0))
    assert (result.inserted, result.updated) == (10, 10) and reopened.check().ok


def test_an_index_type_that_contradicts_key_index_or_scope_is_refused():
    simple = {"hoodie.index.type": "SIMPLE"}
    message = "SIMPLE requires key_index='simple' and scope='partition'"
    refused(message, create_table, options=simple, key_index="record")
    refused(message, create_table, options=simple, scope="table")
    storage = create_table(key_index="simple", scope="partition", options=simple).storage
    refused("GLOBAL_SIMPLE", mdt.open, storage, {"hoodie.index.type": "GLOBAL_SIMPLE"})


def test_the_simple_index_allows_keys_in_every_group_of_their_partition_and_stores_few_bytes():
    table = create_table(
        key_index="simple", options={"mdt.max.file.bytes": 4096, "mdt.metadata.compact.records": 2}
    )
    table.bulk_insert(rows(range(3_000)))
    table.upsert(rows(range(2_999, 3_010), 1.0))
    reopened = mdt.open(table.storage)
    assert len(reopened.snapshot()) > 6 and not reopened.snapshot().uncovered
    assert sum(part.size for part in reopened.snapshot().key_parts) < 300
    assert reopened.scan("id = 'k00007' and city = 'c1'").to_arrow().num_rows == 1
    result = reopened.delete(rows(range(3_005, 3_020)))
    assert result.deleted == 5 and reopened.check().ok


def test_hudis_options_of_the_bloom_index_are_accepted_and_change_no_results():
    options = {
        "hoodie.index.bloom.fpp": "0.001",
        "hoodie.bloom.index.prune.by.ranges": "false",
        "hoodie.bloom.index.use.treebased.filter": "false",
        "hoodie.bloom.index.use.caching": "false",
        "hoodie.bloom.index.parallelism": "2",
        "hoodie.bloom.index.keys.per.bucket": "100",
        "hoodie.bloom.index.filter.type": "DYNAMIC_V0",
        "hoodie.index.bloom.num_entries": "50",
        "hoodie.bloom.index.filter.dynamic.max.entries": "200",
    }
    table = create_table(options=options)
    table.bulk_insert(rows(range(300)))
    result = table.upsert(rows(range(200, 400), 1.0))
    assert (result.inserted, result.updated) == (100, 100) and table.check().ok
    name = next(file["name"] for file in table.files().to_pylist() if "c0" in file["partition"])
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(f"city=c0/{name}"))).metadata
    assert footer[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    keys, text = pa.array(["k00000", "k00003", "k00001"]), footer[b"org.apache.hudi.bloomfilter"]
    assert hudi_bloom.may_contain(text, "DYNAMIC_V0", keys).tolist() == [True, True, False]


BUCKETS = "bucket(buckets='4')"


def groups_of(table):
    return set(table.files()["file_id"].to_pylist())


def files_of_wrong_bucket(table):
    """Return the file ids with a prefix other than the bucket of one of their keys by Hudi's
    hash.
    """
    names = ["_hoodie_record_key", "_hoodie_file_name", "_hoodie_partition_path"]
    rows_with_metadata = table.scan(columns=names).to_arrow().combine_chunks()
    index = table.metadata.key_index(table.snapshot())
    assert isinstance(index, BucketKeyIndex)
    keys, files, partitions = (column.combine_chunks() for column in rows_with_metadata.columns)
    buckets = index.buckets(keys, partitions.to_numpy(zero_copy_only=False)).tolist()
    pairs = zip(files.to_pylist(), buckets, strict=True)
    return [file for file, bucket in pairs if not file.lstrip(".").startswith(f"{bucket:08d}-")]


RULES = {
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.partition.expressions": "city=c0$,4;c[01],5",
    "hoodie.bucket.index.partition.rule.type": "regex",
}


def test_rules_set_the_number_of_buckets_by_partition():
    table = create_table(options=RULES)
    assert table.definition.key_index == "bucket(buckets='2', partitions='city=c0$,4;c[01],5')"
    config = json.loads(table.storage.read(bucket_config.PATH))
    rule = RULES["hoodie.bucket.index.partition.expressions"]
    assert (config["expressions"], config["defaultBucketNumber"], config["rule"]) == (
        rule,
        2,
        "regex",
    )
    table.bulk_insert(rows(range(200)))
    table.metadata.compact()
    reopened = mdt.open(table.storage, RULES)
    assert reopened.upsert(rows(range(1, 100, 2), 3.0)).updated == 50 and reopened.check().ok
    other_rules = {"hoodie.bucket.index.partition.expressions": "city=c0$,5"}
    refused("partitions cannot be", mdt.open, table.storage, other_rules)


@pytest.mark.parametrize(
    "rules", ["c0", "c0,0", "c0,x", "c0,1,2", "(,3", "a,16777216;b,3", f"a,{1 << 25}"]
)
def test_invalid_bucket_rules_are_refused(rules):
    refused("options", create_table, key_index="bucket", options={"mdt.bucket.partitions": rules})


def test_without_bucket_rules_no_file_of_rules_is_written():
    assert create_table(key_index=BUCKETS).storage.read_if_exists(bucket_config.PATH) is None


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.parametrize(
    ("given", "buckets"),
    [({"key_index": BUCKETS}, (4, 4, 4)), ({"options": RULES}, (4, 5, 2))],
    ids=["alike", "by rules"],
)
def test_keys_are_in_the_file_group_of_their_bucket_after_every_operation(
    given, buckets, table_type
):
    options = given.get("options", {}) | {"mdt.max.file.bytes": 4096}
    table = create_table(**{**given, "options": options}, table_type=table_type)
    table.bulk_insert(rows(range(200)))
    groups = groups_of(table)
    assert len(groups) == sum(buckets), (
        "one file group for each bucket of each partition, regardless of the file size limit"
    )
    table.upsert(rows(range(150, 300), 1.0))
    table.insert(rows(range(300, 320)))
    table.delete(rows(range(0, 320, 2)))
    assert table.upsert(rows(range(0, 100, 2), 2.0)).inserted == 50
    table.merge(rows(range(400, 450))).when_not_matched().insert("*").execute()
    assert groups_of(table) == groups and not files_of_wrong_bucket(table)
    table.insert_overwrite(rows(range(0, 60, 3), 5.0))
    assert not files_of_wrong_bucket(table)
    table.restore(2)
    table.compact()
    assert not files_of_wrong_bucket(table) and table.check().ok and table.scan().count() == 300
    partitions_and_buckets = {
        (file["partition"], file["file_id"][:8]) for file in table.files().to_pylist()
    }
    assert len(partitions_and_buckets) == len(table.files())
    assert Counter(partition for partition, _ in partitions_and_buckets) == {
        f"city=c{n}": count for n, count in enumerate(buckets)
    }


def test_hudis_options_set_number_and_fields_of_buckets():
    types = columns("id string, n int64, x double")
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "7",
        "hoodie.bucket.index.hash.field": "n",
    }
    table = mdt.create(MemoryStorage(), types, ["id", "n"], options=options)
    assert table.definition.key_index == "bucket(buckets='7', fields='n')"
    table.upsert(pa.table([["a", "b", "a"], [1, 1, 2], [0.0] * 3], schema=types))
    assert len(groups_of(table)) == 2, "rows with the same n are in one file group"
    reopened = mdt.open(table.storage, options)
    assert reopened.upsert(pa.table([["a"], [1], [1.0]], schema=types)).updated == 1
    assert reopened.get(("a", 1))["x"] == 1.0 and reopened.check().ok
    other_buckets = {"hoodie.bucket.index.num.buckets": 8}
    refused("buckets cannot be 8", mdt.open, table.storage, other_buckets)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scope": "table"}, "scope='table'"),
        ({"options": {"mdt.keys.repeat": True}}, "repeat"),
        ({"options": {"mdt.bucket.fields": "x"}}, "must be key columns"),
        ({"options": {"mdt.bucket.count": 5}}, "different buckets"),
        ({"key_index": "bloom", "options": {"mdt.bucket.count": 5}}, "no buckets"),
        ({"key_index": "bucket(buckets='0')"}, "options"),
    ],
)
def test_invalid_bucket_settings_are_refused(given, told):
    with pytest.raises((Invalid, Unsupported), match=told):
        create_table(**{"key_index": BUCKETS, **given})


def test_two_writers_that_create_the_group_of_one_bucket_conflict():
    table = create_table(key_index="bucket(buckets='1')")
    other = mdt.open(table.storage)
    snapshot = other.snapshot()
    table.upsert(rows([0, 3]))
    request = RowWrite(other.metadata, other.options, "upsert")
    operation = request.in_process(rows([6, 9]), other.definition)
    plan = operation.prepare(snapshot, "a" * 32)
    record = table.metadata.record(1)
    assert record is not None and plan.footprint.opens == {("city=c0", 0)}
    assert "created a file group for bucket 0" in str(
        check(plan.footprint, record, table.metadata.objects.key_map, table.definition.key_hash)
    )


def test_file_groups_of_buckets_are_neither_split_nor_merged(monkeypatch):
    monkeypatch.setattr(split_groups, "PART_BYTES", 1)
    monkeypatch.setattr(split_groups, "PART_ROWS", 1)
    table = create_table(key_index="bucket(buckets='2')", options={"mdt.compact.log.files": 2})
    table.bulk_insert(rows(range(600)))
    groups = groups_of(table)
    for number in range(12):
        table.upsert(rows(range(600), float(number)))
    assert groups_of(table) == groups and table.check().ok


def test_the_key_part_of_a_bloom_index_is_opened_once_for_many_commits(
    monkeypatch,
):
    opened = []
    original = bloom._open
    monkeypatch.setattr(
        bloom, "_open", lambda key_part: opened.append(len(key_part)) or original(key_part)
    )
    table = create_table(options={"mdt.metadata.compact.records": 1_000})
    table.bulk_insert(rows(range(5_000), cities=500))
    for step in range(5):
        table.upsert(rows([7], step, cities=500))
        assert table.get([{"id": "k00007", "city": "c7"}]).num_rows == 1
    largest = max(opened)
    assert largest > 10_000 and opened.count(largest) == 1
