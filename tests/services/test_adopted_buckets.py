"""Adoption of tables with Hudi's bucket index."""

from functools import partial

import pytest
from hidden import HiddenMetadata
from other_writer import OtherWriter
from refusals import refused
from shared_tables import SCHEMA, batch, other_table, rows_of

import mdt
from mdt.errors import Unsupported
from mdt.hudi.bucket_config import FOLDER, encode
from mdt.stores.storage import MemoryStorage


def other_table_with_buckets(storage, buckets=3, **options):
    """Return a table of another writer with Hudi's bucket index."""
    t = mdt.create(
        OtherWriter(storage),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="v",
        key_index=f"bucket(buckets='{buckets}')",
        options=options,
    )
    t.upsert(batch(list(range(30)), 1))
    return t


@pytest.mark.parametrize(
    "named",
    [{"options": {"hoodie.bucket.index.num.buckets": 3}}, {"key_index": "bucket(buckets='3')"}],
)
def test_an_adopted_table_keeps_its_buckets(named):
    storage = MemoryStorage()
    theirs = other_table_with_buckets(storage)
    ours = mdt.adopt(storage, **named)
    assert ours.definition.key_index == "bucket(buckets='3')"
    ours.upsert(batch(list(range(20, 60)), 2))
    theirs = theirs.anew()
    theirs.upsert(batch(list(range(50, 70)), 3, "Rome"))
    assert rows_of(ours) == rows_of(theirs) and ours.check().ok
    ids = {file["file_id"][:8] for file in ours.files().to_pylist()}
    assert ids == {"00000000", "00000001", "00000002"}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, "how many buckets there are: at least 3 … bucket(buckets='3')"),
        ({"key_index": "record"}, "its file groups are buckets … give the key index"),
        ({"key_index": "bucket(buckets='7')"}, "into bucket"),
        ({"options": {"hoodie.bucket.index.num.buckets": 7}}, "into bucket"),
    ],
)
def test_adopting_a_table_with_buckets_needs_their_number_as_key_index(named, said):
    storage = MemoryStorage()
    theirs = other_table_with_buckets(storage)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    refused(said, partial(mdt.adopt, storage, **named), kind=Unsupported)
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(theirs)


def test_a_table_without_buckets_cannot_be_adopted_with_a_bucket_index():
    storage = MemoryStorage()
    other_table(storage).upsert(batch([1], 1))
    refused(
        "are not buckets … such as record",
        partial(mdt.adopt, storage, key_index="bucket(buckets='2')"),
        kind=Unsupported,
    )


def test_partitions_with_different_numbers_of_buckets_keep_them():
    storage, expressions = (
        MemoryStorage(),
        {"hoodie.bucket.index.partition.expressions": "city=Rome,5"},
    )
    theirs = other_table_with_buckets(storage, **expressions)
    refused(
        "numbers of buckets … 'hoodie.bucket.index.num.buckets': 3,"
        " 'hoodie.bucket.index.partition.expressions': 'city=Rome,5'}",
        partial(mdt.adopt, storage, key_index="bucket(buckets='3')"),
        kind=Unsupported,
    )
    buckets = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 3}
    # hashing config of a change that was never completed
    storage.create(f"{FOLDER}/99991231235959999.hashing_config", encode("city=Rome,9", 3))
    storage.create(f"{FOLDER}/.00000000000000.hashing_config.crc", b"crc")
    ours = mdt.adopt(storage, options=buckets | expressions)
    ours.upsert(batch(list(range(20, 60)), 2, "Rome"))
    theirs = theirs.anew()
    theirs.upsert(batch(list(range(50, 70)), 3, "Rome"))
    assert rows_of(ours) == rows_of(theirs) and ours.check().ok


def test_a_table_with_consistent_hashing_buckets_is_not_adopted():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch([1], 1))
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata"
    storage.create(f"{folder}/city=Oslo/00000000000000.hashing_meta", b"{}")
    refused("CONSISTENT_HASHING", mdt.adopt, storage, kind=Unsupported)
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(theirs)
