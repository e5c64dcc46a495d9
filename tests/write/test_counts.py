"""Times of day, durations and local times are integers in expressions and mergers, and are
converted back to their declared types.
"""

from datetime import datetime, time, timedelta

import pyarrow as pa
import pytest
from merges import merged
from reader import agreed

import mdt
from mdt.errors import Invalid

DAY_MS = 86_400_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("wait", pa.duration("s")),
        ("at", pa.time32("ms")),
        ("exact", pa.time64("ns")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.duration("ms"))),
        ("s", pa.struct({"at": pa.time64("us"), "local": pa.timestamp("ms"), "n": pa.int8()})),
        ("m", pa.map_(pa.string(), pa.time32("s"))),
        ("coded", pa.dictionary(pa.int8(), pa.duration("us"))),
    ]
)
PLAIN = SCHEMA.set(8, pa.field("coded", pa.duration("us")))
ROW = {
    "id": "a",
    "wait": timedelta(seconds=90),
    "at": time(1, 2, 3),
    "exact": time(4),
    "local": datetime(2026, 1, 1),
    "list": [timedelta(seconds=1), None],
    "s": {"at": time(5), "local": datetime(2026, 1, 2), "n": 1},
    "m": [("k", time(6))],
    "coded": timedelta(microseconds=7),
}
EMPTY = dict.fromkeys(SCHEMA.names) | {"id": "b"}


def filled_table(folder):
    table = mdt.create(folder / "t", SCHEMA, ["id"], options={"mdt.durable": False})
    table.upsert([ROW, EMPTY])
    return table


def rows_by_id(table):
    return {row["id"]: row for row in agreed(table).to_pylist()}


def test_an_update_calculates_in_the_declared_unit_and_can_set_a_column_to_itself(
    tmp_path,
):
    table = filled_table(tmp_path)
    assert table.update_where({name: name for name in SCHEMA.names[1:]}).updated == 2
    assert rows_by_id(table) == {"a": ROW, "b": EMPTY}
    values = {"wait": "wait + 1", "at": "at + 1", "exact": "exact * 2", "coded": "coded - 1"}
    assert table.update_where(values, "wait > 89").updated == 1
    changed = {
        "wait": timedelta(seconds=91),
        "at": time(1, 2, 3, 1000),
        "exact": time(8),
        "coded": timedelta(microseconds=6),
    }
    assert rows_by_id(table) == {"a": ROW | changed, "b": EMPTY}


@pytest.mark.parametrize(
    "column, text",
    [
        ("at", f"{DAY_MS}"),
        ("at", "-1"),
        ("at", f"{2**31}"),
        ("exact", "exact * 1000"),
        ("wait", f"wait + {2**63 - 1}"),
    ],
)
def test_a_result_outside_the_range_of_its_type_raises(tmp_path, column, text):
    table = filled_table(tmp_path)
    with pytest.raises(Invalid, match=f"'{column}'|overflow"):
        table.update_where({column: text}, "id = 'a'")
    assert rows_by_id(table) == {"a": ROW, "b": EMPTY}


def test_merge_clauses_calculate_in_the_declared_unit(tmp_path):
    table = filled_table(tmp_path)
    source = pa.Table.from_pylist([ROW, ROW | {"id": "c"}], PLAIN)
    values = {"wait": "source.wait + target.wait", "m": "source.m", "s": "source.s"}
    new = {
        "id": "source.id",
        "wait": "source.wait * 2",
        "at": mdt.col("source.at"),
        "local": "source.local",
        "list": "source.list",
    }
    result = merged(table, source, ("matched", None, values), ("not_matched", None, new))
    assert (result.updated, result.inserted) == (1, 1)
    rows, twice = rows_by_id(table), {"wait": timedelta(seconds=180)}
    assert rows["a"] == ROW | twice
    copied = {name: ROW[name] for name in ("at", "local", "list")}
    assert rows["c"] == EMPTY | copied | twice | {"id": "c"}


def test_mergers_calculate_in_the_declared_unit(tmp_path):
    table = filled_table(tmp_path)
    coalesced = dict.fromkeys(("exact", "local", "list", "s", "m", "coded"), "coalesce")
    newer = {"id": "a", "wait": timedelta(seconds=10), "at": time(1)}
    mergers = {"wait": "sum", "at": "max", **coalesced}
    table.upsert(pa.Table.from_pylist([newer], PLAIN), mergers=mergers)
    assert rows_by_id(table)["a"] == ROW | {"wait": timedelta(seconds=100)}
    with pytest.raises(Invalid, match="'at'"):
        table.upsert([{"id": "a", "at": time(23)}], partial=True, mergers={"at": "sum"})
