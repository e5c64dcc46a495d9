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
        options={"mdt.max.file.bytes": 70_000},
    )
    n = 12_000
    ids = [f"k{i:05}" for i in range(n)]
    table.bulk_insert(
        pa.table([ids, [f"c{i % 2}" for i in range(n)], [i % 500 for i in range(n)]], schema=SCHEMA)
    )
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


def test_warming_tells_what_it_has_loaded_and_how_far_it_is(tmp_path: Path) -> None:
    table, told = table_at(tmp_path / "t"), list[tuple[int, int]]()
    found = table.warm(progress=lambda done, total: told.append((done, total)))
    files = len(table.files())
    assert found.seq == table.snapshot().seq and found.key_maps == found.page_maps == files
    assert found.summaries >= 1 and 0 < found.footers < files and found.bytes > 12_000 * 12
    assert told == sorted(told) and told[-1][0] == told[-1][1] > 2 * files
    some = table.warm(["n"])
    assert some.key_maps == 0 and some.page_maps == files and some.bytes < found.bytes


def test_an_empty_table_is_warm(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA)
    table.warm()
    assert table.get("k1") is None


def test_a_table_whose_keys_repeat_is_warmed(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, options={"mdt.keys.repeat": True})
    for n in range(2):
        table.insert({"id": ["k", "l"], "city": ["c0", "c0"], "n": [n, n]}, check=False)
    assert table.warm().key_maps == 2
