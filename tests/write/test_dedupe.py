"""Sources of merges that repeat keys: ``dedupe=True`` takes the newest row of each."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pooled import ThreadTable
from reader import bag, hudi_table

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import LocalStorage

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64(), "fare": pa.float64()})


def made(path: Any, **more: Any) -> mdt.Table:
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], **more)
    table.upsert(rows([("a", "Oslo", 1, 1.0), ("a", "Rome", 1, 1.0), ("b", "Oslo", 1, 1.0)]))
    return table


def rows(values: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def merge(table: mdt.Table, source: Any, on: Any = None) -> mdt.MergeResult:
    return (
        table.merge(source, on, dedupe=True)
        .when_matched()
        .update("*")
        .when_not_matched()
        .insert()
        .execute()
    )


def test_the_row_with_the_largest_ordering_value_is_merged_of_equal_ones_the_last(
    tmp_path: Any,
) -> None:
    table = made(tmp_path / "t", ordering="ts")
    source = rows(
        [
            ("a", "Oslo", 5, 2.0),
            ("a", "Oslo", 4, 3.0),
            ("a", "Rome", 2, 4.0),
            ("x", "Oslo", 1, 5.0),
            ("x", "Oslo", 1, 6.0),
        ]
    )
    done = merge(table, source)
    assert (done.updated, done.inserted, done.source_rows) == (2, 1, 3)
    expected = rows(
        [("a", "Oslo", 5, 2.0), ("a", "Rome", 2, 4.0), ("b", "Oslo", 1, 1.0), ("x", "Oslo", 1, 6.0)]
    )
    assert bag(table.scan().to_arrow()) == bag(expected) == bag(hudi_table(tmp_path / "t", SCHEMA))


def test_without_an_ordering_field_the_last_row_is_merged(tmp_path: Any) -> None:
    table = made(tmp_path / "t")
    merge(table, rows([("a", "Oslo", 5, 2.0), ("a", "Oslo", 4, 3.0)]))
    assert table.scan("id = 'a' and city = 'Oslo'").to_arrow()["fare"].to_pylist() == [3.0]


def test_repeated_keys_are_refused_without_dedupe_and_the_error_names_it(tmp_path: Any) -> None:
    table = made(tmp_path / "t", ordering="ts")
    for key in ("a", "x"):
        twice = rows([(key, "Oslo", 5, 2.0), (key, "Oslo", 4, 3.0)])
        merging = table.merge(twice).when_matched().update("*").when_not_matched().insert()
        with pytest.raises(Invalid, match="dedupe=True"):
            merging.execute()


def test_only_merges_by_key_with_the_ordering_field_are_deduped(tmp_path: Any) -> None:
    table = made(tmp_path / "t", ordering="ts")
    with pytest.raises(Unsupported, match="one row for each record key"):
        table.merge({"fare": [1.0]}, on=["fare"], dedupe=True)
    with pytest.raises(Invalid, match="largest 'ts', which the source lacks"):
        table.merge({"id": ["a"], "city": ["Oslo"]}, dedupe=True)


def test_keys_without_the_partition_are_one_key_where_rows_are_matched_by_the_key_alone(
    tmp_path: Any,
) -> None:
    table = made(tmp_path / "t", ordering="ts")
    source = pa.table({"id": ["b", "b"], "ts": [3, 2], "fare": [7.0, 8.0]})
    done = (
        table.merge(source, on="id", dedupe=True)
        .when_matched()
        .update({"fare": "source.fare"})
        .execute()
    )
    assert done.updated == 1 and table.scan("id = 'b'").to_arrow()["fare"].to_pylist() == [7.0]


def test_rows_without_a_key_are_not_taken_for_one(tmp_path: Any) -> None:
    table = made(tmp_path / "t", ordering="ts")
    source = rows([(None, "Oslo", 1, 1.0), (None, "Oslo", 2, 2.0), ("b", "Oslo", 2, 3.0)])
    done = table.merge(source, dedupe=True).when_matched().update("*").execute()
    assert (done.updated, done.source_rows) == (1, 3)


@pytest.mark.parametrize("ordering", ["ts", "note"])
def test_a_source_that_is_put_aside_is_deduped_as_one_in_memory(
    tmp_path: Any, ordering: str
) -> None:
    schema = SCHEMA.append(pa.field("note", pa.string()))
    chance = random.Random(5)
    values = [
        (
            f"k{chance.randrange(40)}",
            "Oslo",
            chance.randrange(9),
            float(n),
            f"a long text {chance.randrange(9)}",
        )
        for n in range(4000)
    ]
    source = pa.table([list(column) for column in zip(*values, strict=True)], schema=schema)
    seen = []
    for name, options in (("small", {}), ("large", {"mdt.write.memory.max": 1 << 20})):
        table = mdt.create(
            tmp_path / name,
            schema,
            ["id"],
            partition_by=["city"],
            ordering=ordering,
            options=options,
        )
        table.upsert(source.slice(0, 30))
        merge(table, source.to_reader(max_chunksize=200))
        seen.append(bag(table.scan().to_arrow()))
    assert seen[0] == seen[1] and len(seen[0]) == 40


@pytest.mark.parametrize("kind", [mdt.Table, ThreadTable])
def test_rows_of_the_source_are_counted_once_for_each_key(
    tmp_path: Any, kind: type[mdt.Table]
) -> None:
    made(tmp_path / "t", ordering="ts")
    source = rows([("x", "Oslo", 1, 1.0), ("x", "Oslo", 2, 2.0), ("y", "Oslo", 2, 3.0)])
    done = (
        kind(LocalStorage(tmp_path / "t"))
        .merge(source, dedupe=True)
        .when_not_matched()
        .insert()
        .execute()
    )
    assert (done.inserted, done.source_rows) == (2, 2)
