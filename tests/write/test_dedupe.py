"""Merge sources with repeated keys: ``dedupe=True`` keeps the newest row of each key."""

import random
from datetime import date

import pyarrow as pa
import pytest
from reader import bag
from texts import columns

import mdt
from mdt.errors import Invalid, Unsupported

UPDATE = ("matched", None, "*")
from merges import NEW_ALL, merged
from pooled import EVERY_KIND
from reader import agreed
from texts import rows_of

from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, ts int64, fare float64")


def filled_table(path=None, **more):
    location = MemoryStorage() if path is None else path
    table = mdt.create(
        location, SCHEMA, ["id"], partition_by=["city"], **{"ordering": "ts", **more}
    )
    table.upsert(rows_of(SCHEMA, "a Oslo 1 1", "a Rome 1 1", "b Oslo 1 1"))
    return table


def test_dedupe_keeps_the_row_with_the_largest_ordering_value_or_the_last_of_equals(
    tmp_path,
):
    table = filled_table(tmp_path)
    source = ("a Oslo 5 2", "a Oslo 4 3", "a Rome 2 4", "x Oslo 1 5", "x Oslo 1 6")
    result = merged(table, rows_of(SCHEMA, *source), dedupe=True)
    assert (result.updated, result.inserted, result.source_rows) == (2, 1, 3)
    agreed(table, rows_of(SCHEMA, "a Oslo 5 2", "a Rome 2 4", "b Oslo 1 1", "x Oslo 1 6"))
    table = filled_table(ordering=None)
    merged(table, rows_of(SCHEMA, "a Oslo 5 2", "a Oslo 4 3"), dedupe=True)
    last = table.scan("id = 'a' and city = 'Oslo'").to_arrow()["fare"].to_pylist()
    assert last == [3.0], "without an ordering field the last row is kept"


def test_rows_whose_dates_fall_into_one_partition_share_a_key():
    fields = columns("id string, day date32, fare float64")
    options = {"mdt.partition.time.pattern": "yyyy"}
    table = mdt.create(MemoryStorage(), fields, ["id"], partition_by=["day"], options=options)
    rows = [
        ("a", date(2026, 1, 1), 1.0),
        ("a", date(2026, 6, 1), 2.0),
        ("a", date(2027, 6, 1), 3.0),
    ]
    source = pa.table([*map(list, zip(*rows, strict=True))], schema=fields)
    result = merged(table, source, NEW_ALL, dedupe=True)
    assert (result.inserted, result.source_rows) == (2, 2)
    assert bag(table.scan().to_arrow()) == bag(source.slice(1))


def test_repeated_keys_without_dedupe_raise_an_error_that_names_it():
    for key in ("a", "x"):
        with pytest.raises(Invalid, match="dedupe=True"):
            merged(filled_table(), rows_of(SCHEMA, f"{key} Oslo 5 2", f"{key} Oslo 4 3"))


def test_dedupe_needs_a_merge_by_key_and_a_source_with_the_ordering_field():
    with pytest.raises(Unsupported, match="needs a merge by record key"):
        filled_table().merge({"fare": [1.0]}, on=["fare"], dedupe=True)
    with pytest.raises(Invalid, match="largest 'ts', which the source lacks"):
        filled_table().merge({"id": ["a"], "city": ["Oslo"]}, dedupe=True)


def test_a_merge_on_the_key_alone_is_deduped_without_partition_columns():
    table = filled_table()
    source = pa.table({"id": ["b", "b"], "ts": [3, 2], "fare": [7.0, 8.0]})
    clause = ("matched", None, {"fare": "source.fare"})
    assert merged(table, source, clause, on="id", dedupe=True).updated == 1
    assert table.scan("id = 'b'").to_arrow()["fare"].to_pylist() == [7.0]


def test_dedupe_does_not_treat_null_keys_as_equal():
    source = rows_of(SCHEMA, "- Oslo 1 1", "- Oslo 2 2", "b Oslo 2 3")
    result = merged(filled_table(), source, UPDATE, dedupe=True)
    assert (result.updated, result.source_rows) == (1, 3)


@pytest.mark.parametrize("ordering", ["ts", "note"])
def test_a_spilled_source_is_deduped_like_one_in_memory(ordering):
    schema = columns("id string, city string, ts int64, fare double, note string")
    chance = random.Random(5)
    values = [
        f"k{chance.randrange(40)} Oslo {chance.randrange(9)} {n} {'long' * 9}{chance.randrange(9)}"
        for n in range(4000)
    ]
    source = rows_of(schema, *values)
    results = []
    for options in ({}, {"mdt.write.memory.max": 1 << 20}):
        table = mdt.create(
            MemoryStorage(),
            schema,
            ["id"],
            partition_by=["city"],
            ordering=ordering,
            options=options,
        )
        table.upsert(source.slice(0, 30))
        merged(table, source.to_reader(max_chunksize=200), dedupe=True)
        results.append(bag(table.scan().to_arrow()))
    assert results[0] == results[1] and len(results[0]) == 40


@EVERY_KIND
def test_source_rows_counts_each_key_once(kind):
    source = rows_of(SCHEMA, "x Oslo 1 1", "x Oslo 2 2", "y Oslo 2 3")
    result = merged(kind(filled_table().storage), source, NEW_ALL, dedupe=True)
    assert (result.inserted, result.source_rows) == (2, 2)
