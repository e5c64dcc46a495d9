"""The rows of pyiceberg and polars compared with our scans."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from column_kinds import COLUMNS, PARTITION_VALUES
from iceberg_tables import iceberg_rows, others_rows
from reader import bag
from worlds import COW, MOR

import mdt
from mdt.formats.iceberg import tree
from mdt.stores.storage import LocalStorage

pyiceberg_table = pytest.importorskip("pyiceberg.table")
expressions = pytest.importorskip("pyiceberg.expressions")
EqualTo, IsNull = expressions.EqualTo, expressions.IsNull

_UTC = dt.UTC


def _table(path, schema, kind=MOR, **more):
    options = {"mdt.services.auto": False, "mdt.formats.retain.hours": 0}
    storage = LocalStorage(path, durable=False)
    settings = {"key_index": "record", "formats": ["hudi", "iceberg"], "options": options, **more}
    return mdt.create(storage, schema, ["id"], table_type=kind, **settings)


def _static(path):
    return pyiceberg_table.StaticTable.from_metadata(str(path))


def _assert_pyiceberg_agrees(table, path, seq=None):
    expected = bag(table.scan(as_of=seq).to_arrow())
    [(_, read_rows)] = others_rows(path, table.schema, seq)
    assert bag(read_rows) == expected


MILLISECONDS = {"instant in ms", "local time in ms", "local time in s"}
"""Kinds of columns that are refused."""
NULLS_LOST = {"map of structs"}
"""Kinds of columns whose nulls pyiceberg 0.12 reads as empty lists, also in files that it wrote."""


@pytest.mark.parametrize("name", sorted(COLUMNS.keys() - MILLISECONDS))
def test_pyiceberg_returns_the_values_of_every_type_from_base_and_log_files(tmp_path, name):
    type, values = COLUMNS[name]
    if name in NULLS_LOST:
        values = [value for value in values if value is not None]
    schema = pa.schema([("id", pa.int64()), ("v", type)])
    table = _table(tmp_path, schema)
    first = values if name in NULLS_LOST else [None, *values]
    table.upsert(pa.table([range(len(first)), first], schema=schema))
    _assert_pyiceberg_agrees(table, tmp_path)
    table.upsert(pa.table([range(len(values)), values], schema=schema))
    _assert_pyiceberg_agrees(table, tmp_path)
    assert bag(iceberg_rows(table.storage, table.schema)) == bag(table.scan().to_arrow())


@pytest.mark.parametrize("kind", [MOR, COW])
@pytest.mark.parametrize("hive", [True, False])
def test_pyiceberg_returns_and_prunes_by_all_partition_values(tmp_path, kind, hive):
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
    options = {"mdt.services.auto": False, "mdt.hive.style": hive}
    table = _table(tmp_path, schema, kind, partition_by=["city"], ordering="ts", options=options)

    def rows(ids, ts):
        cities = [PARTITION_VALUES[n % len(PARTITION_VALUES)] for n in ids]
        return pa.table([ids, cities, [ts] * len(ids)], schema=schema)

    table.upsert(rows(range(40), 1))
    table.upsert(rows(range(0, 40, 3), 2))
    table.delete(rows(range(0, 40, 4), 3))
    table.update_where({"ts": "ts + 1"}, "id < 20")
    for seq in range(1, table.snapshot().seq + 1):
        _assert_pyiceberg_agrees(table, tmp_path, seq)
    assert table.check().ok
    static = _static(tmp_path)
    for value in PARTITION_VALUES[:-1]:
        scan = static.scan(EqualTo("city", value))
        expected = [
            row["id"] for row in table.scan().to_arrow().to_pylist() if row["city"] == value
        ]
        assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(expected), value
        partitions = {task.file.partition[0] for task in scan.plan_files()}
        assert partitions == {value}
    nulls = static.scan(IsNull("city")).to_arrow()["city"]
    assert len(nulls) and nulls.null_count == len(nulls)


TYPED = {
    "number": (pa.int32(), [1, -2, None]),
    "long": (pa.int64(), [2**40, -1]),
    "day": (pa.date32(), [dt.date(2024, 2, 3), dt.date(1960, 1, 1), None]),
    "flag": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("name", TYPED)
def test_pyiceberg_returns_and_prunes_by_partition_columns_of_every_type(tmp_path, name):
    type, values = TYPED[name]
    schema = pa.schema([("id", pa.int64()), ("p", type)])
    table = _table(tmp_path, schema, partition_by=["p"])
    numbers = list(range(12))
    rows = pa.table([numbers, [values[n % len(values)] for n in numbers]], schema=schema)
    table.upsert(rows)
    table.upsert(rows.slice(0, 5))
    _assert_pyiceberg_agrees(table, tmp_path)
    scan = _static(tmp_path).scan(EqualTo("p", values[0]))
    assert len({task.file.partition for task in scan.plan_files()}) == 1
    assert set(scan.to_arrow()["p"].to_pylist()) == {values[0]}


def test_predicates_of_pyiceberg_prune_files_and_lose_no_rows(tmp_path):
    schema = pa.schema(
        {
            "id": pa.int64(),
            "x": pa.float64(),
            "at": pa.timestamp("us", "UTC"),
            "t": pa.string(),
            "d": pa.decimal128(20, 2),
            "b": pa.binary(),
            "day": pa.date32(),
        }
    )
    options = {"mdt.max.file.bytes": 1024, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
    table = _table(tmp_path, schema, options=options)
    start, first_day = dt.datetime(2024, 1, 1, tzinfo=_UTC), dt.date(1969, 12, 1)

    def rows(ids, step):
        columns = {
            "id": ids,
            "x": [float("nan") if n % 200 == 7 else (n - 100) / 7 for n in ids],
            "at": [start + dt.timedelta(microseconds=1001 * n + step) for n in ids],
            "t": [f"{'p' * 70}{n:05d}" for n in ids],
            "d": [Decimal(n - 200) / 4 for n in ids],
            "b": [n.to_bytes(2, "big") for n in ids],
            "day": [first_day + dt.timedelta(days=n) for n in ids],
        }
        return pa.table(columns, schema=schema)

    table.bulk_insert(rows(range(400), 0))
    table.upsert(rows(range(0, 400, 9), 1))
    static = _static(tmp_path)
    total, files_planned = len(list(static.scan().plan_files())), {}
    assert total > 5
    for n in range(0, 400, 13):
        row = table.scan(f"id = {n}").to_arrow().to_pylist()[0]
        for column in schema.names:
            if row[column] != row[column]:
                continue
            value = row[column].isoformat() if column in ("at", "day") else row[column]
            scan = static.scan(EqualTo(column, value))
            assert scan.to_arrow()["id"].to_pylist() == [n], column
            if column != "t":
                files_planned.setdefault(column, []).append(len(list(scan.plan_files())))
    most_files = {column: max(counts) for column, counts in files_planned.items()}
    assert max(most_files.values()) < total / 2, (most_files, total)


def test_every_retained_snapshot_is_readable_across_split_manifests_and_cleanings(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tree, "FILES_MAX", {0: 6, 1: 3})
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    options = {
        "mdt.max.file.bytes": 4096,
        "mdt.small.file.bytes": 0,
        "mdt.services.auto": False,
        "mdt.formats.retain.hours": 0,
    }
    table, random_source = (
        _table(tmp_path, schema, ordering="ts", options=options),
        np.random.default_rng(5),
    )
    table.bulk_insert(pa.table([range(5000), [0] * 5000], schema=schema))
    for ts in range(1, 9):
        ids = random_source.choice(5000, 20, replace=False)
        table.upsert(pa.table([ids, [ts] * 20], schema=schema))
    for seq in range(1, table.snapshot().seq + 1):
        _assert_pyiceberg_agrees(table, tmp_path, seq)
    manifests = _static(tmp_path).current_snapshot().manifests(_static(tmp_path).io)
    assert len([each for each in manifests if each.content == 1]) > 2
    table.compact()
    table.clean(retain_commits=4)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        _assert_pyiceberg_agrees(table, tmp_path, seq)
    oldest = table.snapshot().retention.horizon
    assert next(each.snapshot_id for each in _static(tmp_path).snapshots()) == oldest
    assert table.check().ok


def test_new_columns_and_fields_are_null_in_older_files(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    table = _table(tmp_path, schema)
    table.upsert(pa.table([[1, 2, 3], [{"a": 1}, None, {"a": 3}]], schema=schema))
    table.alter(add={"note": pa.string()})
    table.upsert([{"id": 2, "s": {"a": 7}, "note": "new"}, {"id": 4, "s": None, "note": "x"}])
    _assert_pyiceberg_agrees(table, tmp_path)
    table.alter(drop=["note"])
    table.alter(add={"s.b": pa.string()})
    table.upsert([{"id": 3, "s": {"a": 9, "b": "new"}}])
    _assert_pyiceberg_agrees(table, tmp_path)
    assert table.check().ok


@pytest.mark.parametrize("kind", [MOR, COW])
def test_files_without_field_ids_are_readable_if_the_format_is_added_later(tmp_path, kind):
    kinds = [COLUMNS[name] for name in sorted(COLUMNS.keys() - MILLISECONDS - NULLS_LOST)]
    types = [(f"c{number}", type) for number, (type, _) in enumerate(kinds)]
    schema = pa.schema([("id", pa.int64()), *types])

    def rows(ids):
        columns = [[values[id % len(values)] for id in ids] for _, values in kinds]
        return pa.table([list(ids), *columns], schema=schema)

    table = _table(tmp_path, schema, kind, formats=["hudi"])
    table.upsert(rows(range(12)))
    begin = table.alter(formats=["hudi", "iceberg"]).seq
    _assert_pyiceberg_agrees(table, tmp_path)
    table.upsert(rows(range(7, 20)))
    table.delete({"id": [1, 8]})
    table.alter(add={"later": pa.int32()})
    for seq in (begin, begin + 1, None):
        scan = table.scan(as_of=seq)
        [(_, read_rows)] = others_rows(tmp_path, scan.schema, seq)
        assert bag(read_rows) == bag(scan.to_arrow())
    assert table.check().ok


@pytest.mark.parametrize("change", [{"add": {"a": pa.int64()}}, {"rename": {"b": "a"}}])
def test_older_snapshots_without_field_ids_are_read_with_their_own_column_names(tmp_path, change):
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    table = _table(tmp_path, schema, formats=["hudi"])
    table.upsert(pa.table([[1, 2], ["x", "y"], ["p", "q"]], schema=schema))
    begin = table.alter(formats=["hudi", "iceberg"]).seq
    table.alter(drop=["a"])
    table.alter(**change, rewrite=True)
    for seq in (begin, None):
        scan = table.scan(as_of=seq)
        [(_, read_rows)] = others_rows(tmp_path, scan.schema, seq)
        assert bag(read_rows) == bag(scan.to_arrow()), seq
    assert table.check().ok


def test_a_moved_table_is_reported_by_check_and_repaired(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    table = _table(tmp_path / "old", schema)
    for ts in range(3):
        table.upsert(pa.table([[1, 2, ts + 3], [ts] * 3], schema=schema))
    (tmp_path / "old").rename(tmp_path / "new")
    moved = mdt.open(tmp_path / "new")
    assert not moved.check().ok
    assert moved.repair().ok
    assert moved.check().ok
    for seq in range(1, 4):
        _assert_pyiceberg_agrees(moved, tmp_path / "new", seq)
    moved.upsert(pa.table([[9], [9]], schema=schema))
    _assert_pyiceberg_agrees(moved, tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert mdt.open(tmp_path / "link").check().ok


@pytest.mark.parametrize("type", [pa.timestamp("ms", "UTC"), pa.timestamp("s")])
def test_columns_in_milliseconds_are_refused_because_spark_filters_them_incorrectly(tmp_path, type):
    for column in (type, pa.struct({"at": type})):
        with pytest.raises(mdt.Invalid, match="format Iceberg: column 'v.*' has milliseconds"):
            _table(tmp_path, pa.schema({"id": pa.int64(), "v": column}))


def test_polars_reads_the_same_rows(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
    table = _table(tmp_path, schema, partition_by=["city"])
    rows = pa.table([range(20), ["a b", "c"] * 10, [1] * 20], schema=schema)
    table.upsert(rows)
    table.upsert(rows.slice(3, 5))
    table.delete([{"id": 2, "city": "a b"}])
    read_rows = polars.scan_iceberg(_static(tmp_path)).collect().to_arrow().cast(schema)
    assert bag(read_rows) == bag(table.scan().to_arrow())
