"""After warm() the first queries find in memory what later ones find there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import trees

import mdt

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def table_at(path: Path) -> mdt.Table:
    table = trees.create(
        path,
        SCHEMA,
        partition_by=["city"],
        key_index="record",
        indexes=["bitmap(n)"],
        options={"mdt.max.file.bytes": 40_000},
    )
    n = 12_000
    ids = [f"k{i:05}" for i in range(n)]
    table.bulk_insert(pa.table([ids, [f"c{i % 2}" for i in range(n)], [i % 500 for i in range(n)]], schema=SCHEMA))
    table.upsert(pa.table([ids[:50], ["c0", "c1"] * 25, [7] * 50], schema=SCHEMA))
    return mdt.open(path)


def misses(table: mdt.Table) -> dict[str, int]:
    caches = table.scan().explain().caches
    return {name: caches.get(name, (0, 0))[1] for name in ("key maps", "page maps", "footers")}


@pytest.mark.parametrize("columns", [None, ["id", "city"]])
def test_nothing_is_read_twice_after_warm(columns: list[str] | None, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.warm(columns)
    before = misses(table)
    assert before["key maps"] and before["page maps"]
    assert table.get("k00777") == {"id": "k00777", "city": "c1", "n": 277}
    assert table.scan("id = 'k00001'").to_arrow()["n"].to_pylist() == [7]
    assert table.scan("n = 499").count() == 24
    assert misses(table) == before


def test_key_maps_stay_away_if_the_key_is_not_asked_for(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.warm(["n"])
    assert misses(table)["key maps"] == 0


def test_an_empty_table_is_warm(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA)
    table.warm()
    assert table.get("k1") is None
