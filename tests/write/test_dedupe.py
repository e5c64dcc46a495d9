"""Sources of merges that repeat keys: ``dedupe=True`` takes the newest row of each."""

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


def made(path=None, **more):
    place = MemoryStorage() if path is None else path
    table = mdt.create(place, SCHEMA, ["id"], partition_by=["city"], **{"ordering": "ts", **more})
    table.upsert(rows_of(SCHEMA, "a Oslo 1 1", "a Rome 1 1", "b Oslo 1 1"))
    return table


def test_the_row_with_the_largest_ordering_value_is_merged_of_equal_ones_the_last(
    tmp_path,
):
    table = made(tmp_path)
    source = ("a Oslo 5 2", "a Oslo 4 3", "a Rome 2 4", "x Oslo 1 5", "x Oslo 1 6")
    done = merged(table, rows_of(SCHEMA, *source), dedupe=True)
    assert (done.updated, done.inserted, done.source_rows) == (2, 1, 3)
    agreed(table, rows_of(SCHEMA, "a Oslo 5 2", "a Rome 2 4", "b Oslo 1 1", "x Oslo 1 6"))
    table = made(ordering=None)
    merged(table, rows_of(SCHEMA, "a Oslo 5 2", "a Oslo 4 3"), dedupe=True)
    last = table.scan("id = 'a' and city = 'Oslo'").to_arrow()["fare"].to_pylist()
    assert last == [3.0], "the last one, without an ordering field"


def test_times_in_one_partition_are_of_one_key():
    fields = columns("id string, day date32, fare float64")
    options = {"mdt.partition.time.pattern": "yyyy"}
    table = mdt.create(MemoryStorage(), fields, ["id"], partition_by=["day"], options=options)
    rows = [
        ("a", date(2026, 1, 1), 1.0),
        ("a", date(2026, 6, 1), 2.0),
        ("a", date(2027, 6, 1), 3.0),
    ]
    source = pa.table([*map(list, zip(*rows, strict=True))], schema=fields)
    done = merged(table, source, NEW_ALL, dedupe=True)
    assert (done.inserted, done.source_rows) == (2, 2)
    assert bag(table.scan().to_arrow()) == bag(source.slice(1))


def test_repeated_keys_are_refused_without_dedupe_and_the_error_names_it():
    for key in ("a", "x"):
        with pytest.raises(Invalid, match="dedupe=True"):
            merged(made(), rows_of(SCHEMA, f"{key} Oslo 5 2", f"{key} Oslo 4 3"))


def test_only_merges_by_key_with_the_ordering_field_are_deduped():
    with pytest.raises(Unsupported, match="needs a merge by record key"):
        made().merge({"fare": [1.0]}, on=["fare"], dedupe=True)
    with pytest.raises(Invalid, match="largest 'ts', which the source lacks"):
        made().merge({"id": ["a"], "city": ["Oslo"]}, dedupe=True)


def test_keys_without_the_partition_are_one_key_where_rows_are_matched_by_the_key_alone():
    table = made()
    source = pa.table({"id": ["b", "b"], "ts": [3, 2], "fare": [7.0, 8.0]})
    taken = ("matched", None, {"fare": "source.fare"})
    assert merged(table, source, taken, on="id", dedupe=True).updated == 1
    assert table.scan("id = 'b'").to_arrow()["fare"].to_pylist() == [7.0]


def test_rows_without_a_key_are_not_taken_for_one():
    source = rows_of(SCHEMA, "- Oslo 1 1", "- Oslo 2 2", "b Oslo 2 3")
    done = merged(made(), source, UPDATE, dedupe=True)
    assert (done.updated, done.source_rows) == (1, 3)


@pytest.mark.parametrize("ordering", ["ts", "note"])
def test_a_source_that_is_put_aside_is_deduped_as_one_in_memory(ordering):
    schema = columns("id string, city string, ts int64, fare double, note string")
    chance = random.Random(5)
    values = [
        f"k{chance.randrange(40)} Oslo {chance.randrange(9)} {n} {'long' * 9}{chance.randrange(9)}"
        for n in range(4000)
    ]
    source = rows_of(schema, *values)
    seen = []
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
        seen.append(bag(table.scan().to_arrow()))
    assert seen[0] == seen[1] and len(seen[0]) == 40


@EVERY_KIND
def test_rows_of_the_source_are_counted_once_for_each_key(kind):
    source = rows_of(SCHEMA, "x Oslo 1 1", "x Oslo 2 2", "y Oslo 2 3")
    done = merged(kind(made().storage), source, NEW_ALL, dedupe=True)
    assert (done.inserted, done.source_rows) == (2, 2)
