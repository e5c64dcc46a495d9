"""Table statistics: the values that ``t.stats()`` returns for columns, and their accuracy."""

import math

import numpy as np
import pyarrow as pa

import mdt
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("place", pa.struct([("city", pa.string())])),
    ]
)


def _rows(first, last):
    numbers = np.arange(first, last)
    xs = [math.nan if i % 100 == 0 else float(i % 7) for i in numbers.tolist()]
    places = [
        None if i % 10 == 0 else {"city": "Rome" if i % 2 else f"c{i % 50}"}
        for i in numbers.tolist()
    ]
    return pa.table([[f"k{i:06}" for i in numbers], numbers, xs, places], schema=SCHEMA)


def _stats_by_column(table):
    return {row["column"]: row for row in table.stats().to_pylist()}


def test_stats_returns_counts_and_bounds_without_an_analyze():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.insert(_rows(0, 500))
    table.insert(_rows(500, 1000))
    stats = _stats_by_column(table)
    assert list(stats) == ["id", "n", "x", "place.city"]
    assert (stats["n"]["rows"], stats["n"]["min"], stats["n"]["max"], stats["n"]["distinct"]) == (
        1000,
        "0",
        "999",
        None,
    )
    assert (stats["x"]["nans"], stats["x"]["max"], stats["place.city"]["nulls"]) == (10, "nan", 100)
    assert all(int(str(row["bytes"])) > 0 for row in stats.values())


def test_analyze_adds_distinct_and_common_values_that_later_writes_maintain():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.insert(_rows(0, 3000))
    stats = {row["column"]: row for row in table.analyze().to_pylist()}
    assert stats["place.city"]["distinct_low"] <= 21 <= stats["place.city"]["distinct_high"]
    assert abs(stats["id"]["distinct"] - 3000) < 0.15 * 3000
    assert stats["x"]["distinct"] == 8, "seven numbers and NaN"
    rome = next(c for c in stats["place.city"]["common"] if c["value"] == "Rome")
    assert rome["count"] <= 1500 <= rome["count"] + rome["error"]
    table.insert(_rows(3000, 9000))
    grown = _stats_by_column(table)["id"]
    assert abs(int(str(grown["distinct"])) - 9000) < 0.15 * 9000 and grown["rows"] == 9000
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}


def test_an_empty_table_has_statistics_without_numbers():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.analyze(["n"])
    assert {row["rows"] for row in table.stats().to_pylist()} == {None}


def test_damaged_statistics_are_shown_as_null():
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, ["id"])
    table.insert(_rows(0, 3000))
    table.analyze(["id"])
    for info in storage.list(".hoodie/.mdt/attachments"):
        storage.replace(
            info.path, bytes(byte ^ 1 for byte in MemoryStorage.read(storage, info.path))
        )
    assert _stats_by_column(mdt.open(storage))["id"]["distinct"] is None
