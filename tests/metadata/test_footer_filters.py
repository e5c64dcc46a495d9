"""Key look-up by the Bloom filters and key ranges in footers of base files, without the metadata
table.
"""

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from texts import columns
from trees import TABLE_TYPES

import mdt
from mdt.metadata.files import paths
from mdt.metadata.keys import footer_filters
from mdt.metadata.keys.locate import locate
from mdt.stores.storage import MemoryStorage
from mdt.write.normalize import normalize, partition_names

SCHEMA = columns("id string, city string, n int64")


def rows(keys, cities=3, n=0):
    numbers = [int(key) for key in keys]
    ids, places = [f"k{key:05}" for key in numbers], [f"c{key % cities}" for key in numbers]
    return pa.table([ids, places, [n] * len(numbers)], schema=SCHEMA)


def create_table(more=None, **options):
    options = {"mdt.max.file.bytes": 8192, "hoodie.bloom.index.use.metadata": "false", **options}
    given = {"partition_by": ["city"], "options": options, **(more or {})}
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], **given)


def key_batch(table, keys):
    return normalize(rows(keys), table.snapshot().definition, numbered=False)


def propose(table, batch, **options):
    snapshot = table.snapshot()
    partitions = None if snapshot.definition.is_global else partition_names(batch)
    metadata = mdt.open(table.storage, options).metadata
    return footer_filters.propose(
        metadata, snapshot, metadata.options(snapshot.definition), batch.keys, partitions
    )


@pytest.mark.parametrize("scope", ["partition", "table"])
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_footers_locate_the_same_rows_as_the_metadata(scope, table_type):
    draw = np.random.default_rng(5)
    table = create_table({"scope": scope, "table_type": table_type})
    for step in range(12):
        keys = draw.choice(2_000, 150, replace=False)
        (table.delete if step % 4 == 3 else table.upsert)(rows(keys, 3 + (step % 2), step))
        if step % 5 == 4:
            table.compact()
        batch, snapshot = key_batch(table, range(0, 2_000, 3)), table.snapshot()
        partitions = partition_names(batch)
        by_footers = locate(
            table.metadata, snapshot, batch.keys, batch.hashes, partitions, propose(table, batch)
        )
        by_metadata = locate(table.metadata, snapshot, batch.keys, batch.hashes, partitions)
        for name in ("file", "position", "group", "dead_in"):
            found, expected = getattr(by_footers, name), getattr(by_metadata, name)
            assert np.array_equal(found, expected), (step, name)
        count("look-ups by footers, compared with those by the metadata", len(batch))
    assert table.check().ok


def test_ranges_and_filters_select_few_file_groups_with_every_setting():
    table = create_table(**{"mdt.max.file.bytes": 4096})
    table.bulk_insert(rows(range(3_000)))
    groups = len(table.files())
    assert groups > 6
    batch = key_batch(table, [*range(0, 3_000, 10), *range(5_000, 5_100)])
    candidates = propose(table, batch)
    assert not len(candidates.whole) and 300 <= len(candidates.key) < 310

    def pairs(found):
        return {*zip(found.key.tolist(), found.group.tolist(), strict=True)}

    for words in ({"mdt.bloom.tree": False}, {"mdt.bloom.ranges": False}, {"mdt.bloom.pairs": 1}):
        found = propose(table, batch, **words)
        assert pairs(candidates) <= pairs(found)
        assert len(found.key) < 320 + 5 * groups, "about one in a hundred is a false positive"


def test_a_file_group_without_a_filter_in_its_footer_may_contain_every_key():
    table = create_table(**{"mdt.write.footer.bloom": "false"})
    table.bulk_insert(rows(range(100)))
    batch = key_batch(table, range(5))
    candidates = propose(table, batch)
    assert not len(candidates.key) and len(candidates.whole) == 3, (
        "one file group per partition, none with a filter"
    )
    done = table.upsert(rows(range(95, 105), 3, 1))
    assert (done.inserted, done.updated) == (5, 5) and table.check().ok


def test_a_damaged_footer_or_an_unknown_filter_type_excludes_no_key(
    monkeypatch,
):
    table = create_table()
    table.bulk_insert(rows(range(90)))
    storage, file = table.storage, table.files().to_pylist()[0]
    path = paths.partition_file(file["partition"], file["name"])
    original = storage.read(path)
    batch = key_batch(table, range(90))
    storage.replace(path, original.replace(original[-40:-20], bytes(20)))
    candidates = propose(table, batch)
    assert len(candidates.whole) == 1 and len(np.unique(candidates.key)) == 60
    storage.replace(path, original)
    assert len(propose(table, batch).whole) == 0
    monkeypatch.setattr(footer_filters, "FILTER_TYPE", "parquet.avro.schema")
    candidates = propose(table, batch)
    assert len(candidates.whole) == 3 and not len(candidates.key), "no filter of a known type"


def test_the_footer_option_affects_only_tables_with_the_bloom_key_index(monkeypatch):
    monkeypatch.setattr(footer_filters, "open_segment", None)
    table, bloom_table = create_table({"key_index": "record"}), create_table()
    for each_table in (table, bloom_table):
        each_table.upsert(rows(range(10)))
    assert table.upsert(rows(range(5, 15), 3, 1)).updated == 5
    with pytest.raises(TypeError):
        bloom_table.upsert(rows(range(5, 15), 3, 1))
