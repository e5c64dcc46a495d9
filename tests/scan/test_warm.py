"""After warm() the first queries find in memory what later ones find there."""

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, n int64")


@pytest.fixture
def table():
    options = {"mdt.max.file.bytes": 70_000}
    indexed = {"partition_by": ["city"], "key_index": "record", "indexes": ["bitmap(n)"]}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options, **indexed)
    n = range(12_000)
    ids = [f"k{i:05}" for i in n]
    cities = [f"c{i % 2}" for i in n]
    table.bulk_insert(pa.table([ids, cities, [i % 500 for i in n]], schema=SCHEMA))
    table.upsert(pa.table([ids[:50], cities[:50], [7] * 50], schema=SCHEMA))
    return mdt.open(table.storage)


def misses(table):
    caches = table.scan().explain().caches
    return {name: caches.get(name, (0, 0))[1] for name in ("key maps", "page maps", "footers")}


@pytest.mark.parametrize("columns", [None, ["id", "city"]])
def test_nothing_is_read_twice_after_warm(columns, table):
    table.warm(columns)
    before = misses(table)
    assert before["key maps"] and before["page maps"]
    assert table.get("k00777") == {"id": "k00777", "city": "c1", "n": 277}
    assert table.scan("id = 'k00001'").to_arrow()["n"].to_pylist() == [7]
    assert table.scan("n = 499").count() == 24
    assert misses(table) == before


def test_warming_tells_what_it_has_loaded_and_how_far_it_is(table):
    told, files = [], len(table.files())
    found = table.warm(progress=lambda *done: told.append(done))
    assert (found.seq, found.key_maps, found.page_maps) == (table.snapshot().seq, files, files)
    assert found.summaries >= 1 and 0 < found.footers < files and found.bytes > 12_000 * 12
    assert told == sorted(told) and told[-1][0] == told[-1][1] > 2 * files
    some = mdt.open(table.storage).warm(["n"])
    assert (some.key_maps, some.page_maps) == (0, files), "the key is not asked for"
    assert some.bytes < found.bytes


def test_an_empty_table_and_one_whose_keys_repeat_are_warmed():
    options = {"mdt.keys.repeat": True}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options)
    assert table.warm().key_maps == 0
    for n in range(2):
        table.insert({"id": ["k", "l"], "city": ["c0", "c0"], "n": [n, n]}, check=False)
    assert table.warm().key_maps == 2
