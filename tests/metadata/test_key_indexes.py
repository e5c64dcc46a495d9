"""Key indexes by their names and by Hudi's, and what each of them does to a table."""

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


def made(**more):
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], **more)


@pytest.mark.parametrize("word", INDEX_TYPES)
def test_hudi_s_index_type_says_key_index_and_scope(word):
    kind, scope = INDEX_TYPES[word]
    table = made(options={"hoodie.index.type": word})
    assert (table.definition.key_index.partition("(")[0], table.definition.scope) == (kind, scope)
    table.upsert(rows(range(30)))
    again = mdt.open(table.storage, {"hoodie.index.type": word})
    done = again.upsert(rows(range(20, 40), 1.0))
    assert (done.inserted, done.updated) == (10, 10) and again.check().ok


def test_an_index_type_that_contradicts_is_refused():
    simple = {"hoodie.index.type": "SIMPLE"}
    said = "SIMPLE requires key_index='simple' and scope='partition'"
    refused(said, made, options=simple, key_index="record")
    refused(said, made, options=simple, scope="table")
    storage = made(key_index="simple", scope="partition", options=simple).storage
    refused("GLOBAL_SIMPLE", mdt.open, storage, {"hoodie.index.type": "GLOBAL_SIMPLE"})


def test_a_simple_index_lets_keys_live_in_every_group_of_their_partition_and_keeps_a_few_bytes():
    table = made(
        key_index="simple", options={"mdt.max.file.bytes": 4096, "mdt.metadata.compact.records": 2}
    )
    table.bulk_insert(rows(range(3_000)))
    table.upsert(rows(range(2_999, 3_010), 1.0))
    again = mdt.open(table.storage)
    assert len(again.snapshot()) > 6 and not again.snapshot().uncovered
    assert sum(part.size for part in again.snapshot().key_parts) < 300
    assert again.scan("id = 'k00007' and city = 'c1'").to_arrow().num_rows == 1
    done = again.delete(rows(range(3_005, 3_020)))
    assert done.deleted == 5 and again.check().ok


def test_hudi_s_options_of_the_bloom_index_are_taken_and_change_no_answer():
    words = {
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
    table = made(options=words)
    table.bulk_insert(rows(range(300)))
    done = table.upsert(rows(range(200, 400), 1.0))
    assert (done.inserted, done.updated) == (100, 100) and table.check().ok
    name = next(file["name"] for file in table.files().to_pylist() if "c0" in file["partition"])
    found = pq.read_metadata(pa.BufferReader(table.storage.read(f"city=c0/{name}"))).metadata
    assert found[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    asked, text = pa.array(["k00000", "k00003", "k00001"]), found[b"org.apache.hudi.bloomfilter"]
    assert hudi_bloom.may_contain(text, "DYNAMIC_V0", asked).tolist() == [True, True, False]


BUCKETS = "bucket(buckets='4')"


def groups_of(table):
    return set(table.files()["file_id"].to_pylist())


def stray(table):
    """Return the file ids that do not begin with the bucket of each of their keys, by Hudi's
    hash.
    """
    names = ["_hoodie_record_key", "_hoodie_file_name", "_hoodie_partition_path"]
    found = table.scan(columns=names).to_arrow().combine_chunks()
    index = table.metadata.key_index(table.snapshot())
    assert isinstance(index, BucketKeyIndex)
    keys, files, places = (column.combine_chunks() for column in found.columns)
    buckets = index.buckets(keys, places.to_numpy(zero_copy_only=False)).tolist()
    pairs = zip(files.to_pylist(), buckets, strict=True)
    return [file for file, bucket in pairs if not file.lstrip(".").startswith(f"{bucket:08d}-")]


RULES = {
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.partition.expressions": "city=c0$,4;c[01],5",
    "hoodie.bucket.index.partition.rule.type": "regex",
}


def test_partitions_have_other_numbers_of_buckets_by_rules():
    table = made(options=RULES)
    assert table.definition.key_index == "bucket(buckets='2', partitions='city=c0$,4;c[01],5')"
    told = json.loads(table.storage.read(bucket_config.PATH))
    rule = RULES["hoodie.bucket.index.partition.expressions"]
    assert (told["expressions"], told["defaultBucketNumber"], told["rule"]) == (rule, 2, "regex")
    table.bulk_insert(rows(range(200)))
    table.metadata.compact()
    again = mdt.open(table.storage, RULES)
    assert again.upsert(rows(range(1, 100, 2), 3.0)).updated == 50 and again.check().ok
    other = {"hoodie.bucket.index.partition.expressions": "city=c0$,5"}
    refused("partitions cannot be", mdt.open, table.storage, other)


@pytest.mark.parametrize(
    "rules", ["c0", "c0,0", "c0,x", "c0,1,2", "(,3", "a,16777216;b,3", f"a,{1 << 25}"]
)
def test_rules_that_are_none_are_refused(rules):
    refused("options", made, key_index="bucket", options={"mdt.bucket.partitions": rules})


def test_a_table_whose_partitions_have_as_many_buckets_has_no_file_of_rules():
    assert made(key_index=BUCKETS).storage.read_if_exists(bucket_config.PATH) is None


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.parametrize(
    ("given", "buckets"),
    [({"key_index": BUCKETS}, (4, 4, 4)), ({"options": RULES}, (4, 5, 2))],
    ids=["alike", "by rules"],
)
def test_keys_stand_in_the_file_group_of_their_bucket_whatever_is_written(
    given, buckets, table_type
):
    options = given.get("options", {}) | {"mdt.max.file.bytes": 4096}
    table = made(**{**given, "options": options}, table_type=table_type)
    table.bulk_insert(rows(range(200)))
    groups = groups_of(table)
    assert len(groups) == sum(buckets), (
        "a file group for each bucket of each partition, however small files are to be"
    )
    table.upsert(rows(range(150, 300), 1.0))
    table.insert(rows(range(300, 320)))
    table.delete(rows(range(0, 320, 2)))
    assert table.upsert(rows(range(0, 100, 2), 2.0)).inserted == 50
    table.merge(rows(range(400, 450))).when_not_matched().insert("*").execute()
    assert groups_of(table) == groups and not stray(table)
    table.insert_overwrite(rows(range(0, 60, 3), 5.0))
    assert not stray(table)
    table.restore(2)
    table.compact()
    assert not stray(table) and table.check().ok and table.scan().count() == 300
    places = {(file["partition"], file["file_id"][:8]) for file in table.files().to_pylist()}
    assert len(places) == len(table.files())
    assert Counter(place for place, _ in places) == {
        f"city=c{n}": count for n, count in enumerate(buckets)
    }


def test_hudi_s_options_say_number_and_fields_of_buckets():
    types = columns("id string, n int64, x double")
    words = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "7",
        "hoodie.bucket.index.hash.field": "n",
    }
    table = mdt.create(MemoryStorage(), types, ["id", "n"], options=words)
    assert table.definition.key_index == "bucket(buckets='7', fields='n')"
    table.upsert(pa.table([["a", "b", "a"], [1, 1, 2], [0.0] * 3], schema=types))
    assert len(groups_of(table)) == 2, "rows with the same n are together"
    again = mdt.open(table.storage, words)
    assert again.upsert(pa.table([["a"], [1], [1.0]], schema=types)).updated == 1
    assert again.get(("a", 1))["x"] == 1.0 and again.check().ok
    other = {"hoodie.bucket.index.num.buckets": 8}
    refused("buckets cannot be 8", mdt.open, table.storage, other)


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
def test_buckets_that_cannot_be_are_refused(given, told):
    with pytest.raises((Invalid, Unsupported), match=told):
        made(**{"key_index": BUCKETS, **given})


def test_two_writers_that_open_the_same_bucket_do_so_one_after_the_other():
    table = made(key_index="bucket(buckets='1')")
    others = mdt.open(table.storage)
    seen = others.snapshot()
    table.upsert(rows([0, 3]))
    request = RowWrite(others.metadata, others.options, "upsert")
    operation = request.in_process(rows([6, 9]), others.definition)
    plan = operation.prepare(seen, "a" * 32)
    record = table.metadata.record(1)
    assert record is not None and plan.footprint.opens == {("city=c0", 0)}
    assert "created a file group for bucket 0" in str(
        check(plan.footprint, record, table.metadata.objects.key_map, table.definition.key_hash)
    )


def test_file_groups_of_buckets_are_neither_cut_nor_joined(monkeypatch):
    monkeypatch.setattr(split_groups, "PART_BYTES", 1)
    monkeypatch.setattr(split_groups, "PART_ROWS", 1)
    table = made(key_index="bucket(buckets='2')", options={"mdt.compact.log.files": 2})
    table.bulk_insert(rows(range(600)))
    groups = groups_of(table)
    for number in range(12):
        table.upsert(rows(range(600), float(number)))
    assert groups_of(table) == groups and table.check().ok


def test_commits_open_a_part_of_the_bloom_index_once_however_many_there_are(
    monkeypatch,
):
    opened = []
    of = bloom._open
    monkeypatch.setattr(
        bloom, "_open", lambda key_part: opened.append(len(key_part)) or of(key_part)
    )
    table = made(options={"mdt.metadata.compact.records": 1_000})
    table.bulk_insert(rows(range(5_000), cities=500))
    for step in range(5):
        table.upsert(rows([7], step, cities=500))
        assert table.get([{"id": "k00007", "city": "c7"}]).num_rows == 1
    largest = max(opened)
    assert largest > 10_000 and opened.count(largest) == 1
