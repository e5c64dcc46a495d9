"""The rows of delta-rs and polars compared with our scans."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from column_kinds import COLUMNS, PARTITION_VALUES
from delta_tables import others_rows
from reader import bag
from worlds import COW, MOR

import mdt
from mdt.formats.delta import places, vectors
from mdt.stores.storage import LocalStorage

deltalake = pytest.importorskip("deltalake")
polars = pytest.importorskip("polars")

BOTH = ["hudi", "delta"]
_UTC = dt.UTC


def _table(path, schema, kind=MOR, **more):
    options = {"mdt.services.auto": False, "mdt.formats.retain.hours": 0}
    storage = LocalStorage(path, durable=False)
    settings = {"key_index": "record", "formats": BOTH, "options": options, **more}
    return mdt.create(storage, schema, ["id"], table_type=kind, **settings)


def _assert_readers_agree(table, seq=None):
    expected = bag(table.scan(as_of=seq).to_arrow())
    readers = dict(others_rows(table.path.removeprefix("file://"), table.schema, seq))
    assert readers.keys() == {"delta-rs", "polars"}
    for name, rows in readers.items():
        assert bag(rows) == expected, name


@pytest.mark.parametrize("name", COLUMNS)
def test_delta_readers_return_the_values_of_every_type_from_base_and_log_files(tmp_path, name):
    type, values = COLUMNS[name]
    schema = pa.schema([("id", pa.int64()), ("v", type)])
    table = _table(tmp_path, schema)
    table.upsert(pa.table([range(len(values) + 1), [None, *values]], schema=schema))
    _assert_readers_agree(table)
    table.upsert(pa.table([range(len(values)), values], schema=schema))
    _assert_readers_agree(table)


@pytest.mark.parametrize("kind", [MOR, COW])
@pytest.mark.parametrize("hive", [True, False])
def test_delta_readers_return_all_partition_values(tmp_path, kind, hive):
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
    more = {"partition_by": ["city"], "ordering": "ts"}
    more["options"] = {"mdt.services.auto": False, "mdt.hive.style": hive}
    table = _table(tmp_path, schema, kind, **more)

    def rows(ids, ts):
        return pa.table(
            [ids, [PARTITION_VALUES[n % len(PARTITION_VALUES)] for n in ids], [ts] * len(ids)],
            schema=schema,
        )

    table.upsert(rows(range(40), 1))
    _assert_readers_agree(table)
    table.upsert(rows(range(0, 40, 3), 2))
    _assert_readers_agree(table)
    table.delete(rows(range(0, 40, 4), 3))
    table.update_where({"ts": "ts + 1"}, "id < 20")
    _assert_readers_agree(table)
    assert table.check().ok
    filtered = polars.scan_delta(str(tmp_path)).filter(polars.col("city") == "x").collect()
    assert sorted(filtered["id"]) == sorted(table.scan("city = 'x'").to_arrow()["id"].to_pylist())


TYPED = {
    "number": (pa.int32(), [1, -2, None]),
    "day": (pa.date32(), [dt.date(2024, 2, 3), None]),
    "flag": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("name", TYPED)
def test_delta_readers_return_partition_columns_of_every_type(tmp_path, name):
    type, values = TYPED[name]
    schema = pa.schema([("id", pa.int64()), ("p", type)])
    table = _table(tmp_path, schema, partition_by=["p"])
    numbers = list(range(12))
    rows = pa.table([numbers, [values[n % len(values)] for n in numbers]], schema=schema)
    table.upsert(rows)
    table.upsert(rows.slice(0, 5))
    _assert_readers_agree(table)


def test_predicates_of_delta_readers_prune_files_and_lose_no_rows(tmp_path):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("x", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("t", pa.string()),
        ]
    )
    options = {"mdt.max.file.bytes": 1024, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
    table = _table(tmp_path, schema, options=options)
    start = dt.datetime(2024, 1, 1, tzinfo=_UTC)

    def rows(ids, step):
        times = [start + dt.timedelta(microseconds=1001 * n + step) for n in ids]
        x = [float("nan") if n % 50 == 7 else n / 7 for n in ids]
        return pa.table([ids, x, times, [f"{'p' * 70}{n:05d}" for n in ids]], schema=schema)

    table.bulk_insert(rows(range(400), 0))
    table.upsert(rows(range(0, 400, 9), 1))
    path = str(tmp_path)
    assert len(deltalake.DeltaTable(path).file_uris()) > 5
    for n in range(0, 400, 7):
        row = table.scan(f"id = {n}").to_arrow().to_pylist()[0]
        for column in ("id", "at", "t") if row["x"] != row["x"] else ("id", "x", "at", "t"):
            scan = polars.scan_delta(path).filter(polars.col(column) == row[column])
            assert scan.collect()["id"].to_list() == [n], column
        at = row["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        query = f"select id from t where at = timestamp '{at}' and id >= {n}"
        result = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute(query)
        assert pa.table(result)["id"].to_pylist() == [n]
    actions = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True))
    ranges = zip(actions["min.id"].to_pylist(), actions["max.id"].to_pylist(), strict=True)
    assert sum(low is None or low <= 3 <= high for low, high in ranges) < len(actions) / 2
    assert actions["min.id"].null_count == 0, "twins have bounds, too"


@pytest.mark.parametrize("text", ["0.0", "-0.0"])
@pytest.mark.parametrize("operator", ["=", "<=", ">="])
def test_a_filter_on_zero_in_delta_rs_returns_the_same_rows_with_and_without_pruning(
    tmp_path, text, operator
):
    """delta-rs 1.6 treats both zeros as equal, 1.5 does not."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    options = {"mdt.small.file.bytes": 0, "mdt.services.auto": False}
    table = _table(tmp_path, schema, options=options)
    for number, values in enumerate([[-0.0], [0.0], [0.0, -0.0]]):
        table.insert(
            pa.table([[10 * number + n for n in range(len(values))], values], schema=schema)
        )
    condition = f"x {operator} cast('{text}' as double)"
    results = []
    for query in (f"select id from t where {condition}", f"select id, {condition} hit from t"):
        delta = deltalake.DeltaTable(str(tmp_path))
        results.append(pa.table(deltalake.QueryBuilder().register("t", delta).execute(query)))
    filtered, tested = results
    expected = tested.filter(tested["hit"])["id"].to_pylist()
    assert expected and sorted(filtered["id"].to_pylist()) == sorted(expected)


def test_counts_and_extremes_of_delta_readers_ignore_deleted_rows(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    table = _table(tmp_path, schema)
    table.upsert(pa.table([range(100), range(100)], schema=schema))
    table.delete(pa.table([[0, 99, 50]], names=["id"]))
    table.upsert(pa.table([[1, 98], [7, 7]], schema=schema))
    query = "select count(*) n, count(x) c, min(x) low, max(x) high, sum(x) s from t"
    query_builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    [row] = pa.table(query_builder.execute(query)).to_pylist()
    x = table.scan().to_arrow()["x"].to_pylist()
    expected = {"n": 97, "c": 97, "low": min(x), "high": max(x), "s": sum(x)}
    assert row == expected
    scan, column = polars.scan_delta(str(tmp_path)), polars.col("x")
    facts = [polars.len().alias("n"), column.count().alias("c"), column.min().alias("low")]
    facts += [column.max().alias("high"), column.sum().alias("s")]
    [row] = scan.select(facts).collect().to_dicts()
    assert row == expected
    assert scan.select(polars.len()).collect().item() == 97


def test_every_retained_version_is_readable_across_checkpoints_and_cleanings(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 5)
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 64)
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    table, random_source = _table(tmp_path, schema, ordering="ts"), np.random.default_rng(5)
    table.upsert(pa.table([range(5000), [0] * 5000], schema=schema))
    for ts in range(1, 14):
        ids = random_source.choice(5000, 200, replace=False)
        table.upsert(pa.table([ids, [ts] * 200], schema=schema))
    assert table.storage.list(vectors.FOLDER)
    for seq in range(1, table.snapshot().seq + 1):
        _assert_readers_agree(table, seq)
    table.compact()
    table.clean(retain_commits=4)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        _assert_readers_agree(table, seq)
    with pytest.raises(Exception, match="log segment|version"):
        deltalake.DeltaTable(str(tmp_path), version=3)


@pytest.mark.parametrize("kind", [MOR, COW])
def test_a_log_that_begins_in_the_middle_of_a_history_is_readable(tmp_path, kind):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    table = _table(tmp_path, schema, kind, formats=["hudi"])
    for ts in range(3):
        table.upsert(pa.table([[1, 2, ts + 3], [ts] * 3], schema=schema))
    table.compact()
    begin = table.alter(formats=BOTH).seq
    assert begin > 3
    _assert_readers_agree(table)
    table.upsert(pa.table([[1, 9], [7, 7]], schema=schema))
    _assert_readers_agree(table)
    _assert_readers_agree(table, begin)
    table.alter(formats=["hudi"])
    with pytest.raises(Exception, match="No files in log"):
        deltalake.DeltaTable(str(tmp_path))
    table.compact()
    table.alter(formats=BOTH)
    _assert_readers_agree(table)


def test_a_new_column_is_null_in_older_files(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    table = _table(tmp_path, schema)
    table.upsert(pa.table([[1, 2, 3], [{"a": 1}, None, {"a": 3}]], schema=schema))
    table.alter(add={"note": pa.string()})
    table.upsert([{"id": 2, "s": {"a": 7}, "note": "new"}, {"id": 4, "s": None, "note": "x"}])
    _assert_readers_agree(table)
    table.alter(drop=["note"])
    table.upsert([{"id": 3, "s": {"a": 9}}])
    _assert_readers_agree(table)


def test_a_new_field_of_a_struct_is_null_in_older_files(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    table = _table(tmp_path, schema)
    table.upsert(pa.table([[1, 2, 3], [{"a": 1}, None, {"a": 3}]], schema=schema))
    table.alter(add={"s.b": pa.string()})
    table.upsert([{"id": 2, "s": {"a": 7, "b": "new"}}])
    _assert_readers_agree(table)


def _rows(*ids):
    return pa.table([list(ids), [9] * len(ids)], names=["id", "ts"])


REFUSED = {
    "append": lambda other: deltalake.write_deltalake(other, _rows(9), mode="append"),
    "overwrite": lambda other: deltalake.write_deltalake(other, _rows(9), mode="overwrite"),
    "delete": lambda other: other.delete("id = 1"),
    "update": lambda other: other.update({"ts": "0"}),
    "merge": lambda other: (
        other.merge(_rows(1), "a.id = b.id", "b", "a").when_matched_delete().execute()
    ),
    "compaction": lambda other: other.optimize.compact(),
    "z-order": lambda other: other.optimize.z_order(["ts"]),
    "full vacuum": lambda other: _vacuum(other, full=True),
    "lite vacuum": lambda other: _vacuum(other, full=False),
    "restore": lambda other: other.restore(1),
    "more columns": lambda other: other.alter.add_columns([deltalake.Field("n", _LONG)]),
    "properties": lambda other: other.alter.set_table_properties({"delta.appendOnly": "true"}),
}
"""Operations of other programs that the log refuses."""
_LONG = deltalake.schema.PrimitiveType("long")


def _vacuum(other, *, full):
    other.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


def _create_updated_table(path):
    """Return a table with updates in several commits."""
    table = _table(path, pa.schema([("id", pa.int64()), ("ts", pa.int64())]))
    for ts in range(3):
        table.upsert(_rows(1, 2, ts + 3))
    return table


@pytest.mark.parametrize("work", REFUSED)
def test_writes_and_maintenance_of_other_programs_are_refused(tmp_path, work):
    table = _create_updated_table(tmp_path)
    before = {(info.path, info.size) for info in table.storage.list("")}
    with pytest.raises(Exception, match="mdt-derived|[Uu]nsupported"):
        REFUSED[work](deltalake.DeltaTable(str(tmp_path)))
    assert {(info.path, info.size) for info in table.storage.list("")} == before
    table.upsert(_rows(1))
    _assert_readers_agree(table)


@pytest.mark.parametrize("work", ["create_checkpoint", "cleanup_metadata", "repair"])
def test_further_maintenance_of_other_programs_removes_no_file(tmp_path, work):
    table = _create_updated_table(tmp_path)
    before = {(info.path, info.size) for info in table.storage.list("")}
    with suppress(Exception):
        getattr(deltalake.DeltaTable(str(tmp_path)), work)()
    assert before <= {(info.path, info.size) for info in table.storage.list("")}
    _assert_readers_agree(table)
    table.upsert(_rows(1))
    _assert_readers_agree(table)
    assert table.repair().ok
    _assert_readers_agree(table)


def test_compacting_one_file_group_keeps_the_rows_of_other_groups_in_a_twin(tmp_path):
    """The replaced log file has deleted rows only, so the twin of its commit is unchanged."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    options = {"mdt.services.auto": False, "hoodie.parquet.small.file.limit": 0}
    table = _table(tmp_path, schema, options=options)
    for key in "ab":
        table.insert([{"id": key, "n": 1}])
    table.upsert([{"id": "a", "n": 2}, {"id": "b", "n": 2}])
    table.upsert([{"id": "a", "n": 3}])
    assert table.compact(strategy="log_files", budget_bytes=1).files_written == 1
    _assert_readers_agree(table)
    table.upsert([{"id": "b", "n": 4}])
    _assert_readers_agree(table)
    assert table.check().ok
