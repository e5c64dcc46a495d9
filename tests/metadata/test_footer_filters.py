"""The Bloom index by the footers of base files: where keys may live, without the metadata table."""

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
    found = [int(key) for key in keys]
    ids, places = [f"k{key:05}" for key in found], [f"c{key % cities}" for key in found]
    return pa.table([ids, places, [n] * len(found)], schema=SCHEMA)


def made(more=None, **options):
    options = {"mdt.max.file.bytes": 8192, "hoodie.bloom.index.use.metadata": "false", **options}
    given = {"partition_by": ["city"], "options": options, **(more or {})}
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], **given)


def asked(table, keys):
    return normalize(rows(keys), table.snapshot().definition, numbered=False)


def proposed(table, batch, **options):
    snapshot = table.snapshot()
    matters = None if snapshot.definition.is_global else partition_names(batch)
    metadata = mdt.open(table.storage, options).metadata
    return footer_filters.propose(
        metadata, snapshot, metadata.options(snapshot.definition), batch.keys, matters
    )


@pytest.mark.parametrize("scope", ["partition", "table"])
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_rows_are_found_as_by_the_metadata(scope, table_type):
    draw = np.random.default_rng(5)
    table = made({"scope": scope, "table_type": table_type})
    for step in range(12):
        keys = draw.choice(2_000, 150, replace=False)
        (table.delete if step % 4 == 3 else table.upsert)(rows(keys, 3 + (step % 2), step))
        if step % 5 == 4:
            table.compact()
        batch, snapshot = asked(table, range(0, 2_000, 3)), table.snapshot()
        place = partition_names(batch)
        by_footers = locate(
            table.metadata, snapshot, batch.keys, batch.hashes, place, proposed(table, batch)
        )
        by_metadata = locate(table.metadata, snapshot, batch.keys, batch.hashes, place)
        for name in ("file", "position", "group", "dead_in"):
            found, expected = getattr(by_footers, name), getattr(by_metadata, name)
            assert np.array_equal(found, expected), (step, name)
        count("look-ups by footers, compared with those by the metadata", len(batch))
    assert table.check().ok


def test_ranges_and_filters_leave_few_file_groups_whichever_way_they_are_asked():
    table = made(**{"mdt.max.file.bytes": 4096})
    table.bulk_insert(rows(range(3_000)))
    groups = len(table.files())
    assert groups > 6
    batch = asked(table, [*range(0, 3_000, 10), *range(5_000, 5_100)])
    there = proposed(table, batch)
    assert not len(there.whole) and 300 <= len(there.key) < 310

    def pairs(found):
        return {*zip(found.key.tolist(), found.group.tolist(), strict=True)}

    for words in ({"mdt.bloom.tree": False}, {"mdt.bloom.ranges": False}, {"mdt.bloom.pairs": 1}):
        found = proposed(table, batch, **words)
        assert pairs(there) <= pairs(found)
        assert len(found.key) < 320 + 5 * groups, "about one in a hundred is a false positive"


def test_a_file_group_whose_footer_says_nothing_may_hold_every_key():
    table = made(**{"mdt.write.footer.bloom": "false"})
    table.bulk_insert(rows(range(100)))
    batch = asked(table, range(5))
    found = proposed(table, batch)
    assert not len(found.key) and len(found.whole) == 3, "without filters"
    done = table.upsert(rows(range(95, 105), 3, 1))
    assert (done.inserted, done.updated) == (5, 5) and table.check().ok


def test_a_damaged_footer_and_an_unknown_filter_hide_no_key(
    monkeypatch,
):
    table = made()
    table.bulk_insert(rows(range(90)))
    storage, file = table.storage, table.files().to_pylist()[0]
    path = paths.partition_file(file["partition"], file["name"])
    whole = storage.read(path)
    batch = asked(table, range(90))
    storage.replace(path, whole.replace(whole[-40:-20], bytes(20)))
    found = proposed(table, batch)
    assert len(found.whole) == 1 and len(np.unique(found.key)) == 60
    storage.replace(path, whole)
    assert len(proposed(table, batch).whole) == 0
    monkeypatch.setattr(footer_filters, "FILTER_TYPE", "parquet.avro.schema")
    found = proposed(table, batch)
    assert len(found.whole) == 3 and not len(found.key), "no filter that is known"


def test_the_option_is_the_bloom_index_s_alone(monkeypatch):
    monkeypatch.setattr(footer_filters, "open_segment", None)
    table, other = made({"key_index": "record"}), made()
    for one in (table, other):
        one.upsert(rows(range(10)))
    assert table.upsert(rows(range(5, 15), 3, 1)).updated == 5
    with pytest.raises(TypeError):
        other.upsert(rows(range(5, 15), 3, 1))
