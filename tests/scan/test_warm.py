"""After ``warm()``, the first queries find everything in memory that later ones would."""

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, n int64")


@pytest.fixture
def table():
    options = {"mdt.max.file.bytes": 70_000}
    definition = {"partition_by": ["city"], "key_index": "record", "indexes": ["bitmap(n)"]}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options, **definition)
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
def test_queries_after_warm_have_no_cache_misses(columns, table):
    table.warm(columns)
    before = misses(table)
    assert before["key maps"] and before["page maps"]
    assert table.get("k00777") == {"id": "k00777", "city": "c1", "n": 277}
    assert table.scan("id = 'k00001'").to_arrow()["n"].to_pylist() == [7]
    assert table.scan("n = 499").count() == 24
    assert misses(table) == before


def test_warm_reports_its_progress_and_what_it_loaded(table):
    progress, files = [], len(table.files())
    loaded = table.warm(progress=lambda *done: progress.append(done))
    assert (loaded.seq, loaded.key_maps, loaded.page_maps) == (table.snapshot().seq, files, files)
    assert loaded.summaries >= 1 and 0 < loaded.footers < files and loaded.bytes > 12_000 * 12
    assert progress == sorted(progress) and progress[-1][0] == progress[-1][1] > 2 * files
    loaded_without_key = mdt.open(table.storage).warm(["n"])
    assert (loaded_without_key.key_maps, loaded_without_key.page_maps) == (0, files), (
        "key maps are loaded only for key columns"
    )
    assert loaded_without_key.bytes < loaded.bytes


def test_warm_works_on_an_empty_table_and_with_repeated_keys():
    options = {"mdt.keys.repeat": True}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options)
    assert table.warm().key_maps == 0
    for n in range(2):
        table.insert({"id": ["k", "l"], "city": ["c0", "c0"], "n": [n, n]}, check=False)
    assert table.warm().key_maps == 2
