"""Every name of the public API does what its documentation says; hudi-rs sees the same rows after
each step.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import trees

import mdt
from indexes import hudi_bloom
from mdt import Invalid

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
BOTH = pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
KEY_INDEXES = pytest.mark.parametrize("key_index", ["bloom", "record"])


def rows(numbers: range, ts: int = 1, fare: float = 1.0) -> pa.Table:
    n = len(numbers)
    ids, cities = [f"k{i:03}" for i in numbers], [("x", "y")[i % 2] for i in numbers]
    return pa.table({"id": ids, "city": cities, "ts": [ts] * n, "fare": [fare] * n}, SCHEMA)


def counts(result: mdt.WriteResult) -> tuple[int, int, int, int, int]:
    return result.inserted, result.updated, result.deleted, result.late, result.missing


@BOTH
@KEY_INDEXES
def test_a_life_of_a_table(table_type: str, key_index: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = trees.create(
        path,
        SCHEMA,
        partition_by=["city"],
        ordering="ts",
        table_type=table_type,
        key_index=key_index,
    )
    assert trees.assert_readers_agree(table, path) == []
    steps = [
        (table.insert, rows(range(10)), (10, 0, 0, 0, 0), 10),
        (table.bulk_insert, rows(range(10, 20)), (10, 0, 0, 0, 0), 20),
        (table.upsert, rows(range(15, 25), 2, 2.0), (5, 5, 0, 0, 0), 25),
        (table.upsert, rows(range(15, 17), 1, 9.0), (0, 0, 0, 2, 0), 25),
        (table.delete, rows(range(24, 30)).select(["id", "city"]), (0, 0, 1, 0, 5), 24),
        (table.upsert, rows(range(24), 3, 3.0), (0, 24, 0, 0, 0), 24),
        (table.delete, rows(range(24)), (0, 0, 24, 0, 0), 0),
        (table.delete, rows(range(24)), (0, 0, 0, 0, 24), 0),
        (table.upsert, rows(range(24), 1, 5.0), (24, 0, 0, 0, 0), 24),
    ]
    for write, data, expected, left in steps:
        before = table.snapshot().seq
        result = write(data)
        assert counts(result) == expected
        changed = sum(expected[:3]) > 0
        assert result.seq == table.snapshot().seq == before + changed
        assert bool(result.instant) == changed
        assert (result.attempts, result.engine, result.warnings) == (1, "arrow", ())
        assert len(trees.assert_readers_agree(table, path)) == left
    assert table.compact().seq == table.snapshot().seq
    assert trees.assert_readers_agree(table, path) == trees.ordered(rows(range(24), 1, 5.0))


def test_a_table_is_found_by_text_path_and_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdt.create(tmp_path / "a b", SCHEMA, ["id"]).upsert(rows(range(3)))
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "a b").as_uri()
    for where in (tmp_path / "a b", str(tmp_path / "a b"), "a b", url):
        table = mdt.open(where)
        assert table.scan().count() == 3
        assert table.path == str(tmp_path / "a b")
    mdt.create((tmp_path / "by%url").as_uri(), SCHEMA, ["id"])
    mdt.create("relative", SCHEMA, ["id"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a b", "by%url", "relative"]


class Stream:
    """Has the PyCapsule interface and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OneBatch:
    """Has the PyCapsule interface of a single batch."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


INPUTS = {
    "table": lambda t: t,
    "record batch": lambda t: t.to_batches()[0],
    "reader": lambda t: t.to_reader(max_chunksize=3),
    "stream capsule": Stream,
    "array capsule": OneBatch,
    "duckdb relation": lambda t: duckdb.from_arrow(t),
    "struct array": lambda t: t.to_struct_array(),
    "dictionaries": lambda t: t.set_column(0, "id", t["id"].dictionary_encode()),
    "large text": lambda t: t.set_column(0, "id", t["id"].cast(pa.large_string())),
    "text views": lambda t: t.set_column(0, "id", t["id"].cast(pa.string_view())),
    "narrow integers": lambda t: t.set_column(2, "ts", t["ts"].cast(pa.int8())),
    "columns in another order": lambda t: t.select(["fare", "ts", "city", "id"]),
    "many chunks": lambda t: pa.concat_tables([t.slice(i, 1) for i in range(len(t))]),
    "runs": lambda t: t.set_column(2, "ts", pc.run_end_encode(t["ts"])),
    "a slice": lambda t: pa.concat_tables([t, t]).combine_chunks().slice(2, len(t)),
}


@pytest.mark.parametrize("shape", INPUTS.values(), ids=INPUTS.keys())
def test_writes_and_deletes_take(shape: Any, tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, partition_by=["city"])
    data = rows(range(10))
    assert counts(table.upsert(shape(data))) == (10, 0, 0, 0, 0)
    assert trees.ordered(table.scan().to_arrow()) == trees.ordered(data)
    assert counts(table.delete(shape(data))) == (0, 0, 10, 0, 0)
    assert counts(table.insert(shape(data))) == (10, 0, 0, 0, 0)
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(data)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> mdt.Table:
    path = tmp_path_factory.mktemp("scan") / "t"
    table = trees.create(path, SCHEMA, partition_by=["city"], key_index="record")
    table.upsert(rows(range(20)))
    table.upsert(rows(range(10, 30), 2, 2.0))
    table.delete(rows(range(5)))
    return table


WHERES: dict[str, tuple[Any, int]] = {
    "everything": (None, 25),
    "nothing": ("fare > 100", 0),
    "SQL": ("fare = 1 and city = 'x'", 2),
    "a list of tests": ([("fare", "=", 1.0), ("city", "=", "x")], 2),
    "a deleted key": ("id = 'k003'", 0),
    "an updated key": ("id = 'k015' and fare = 2", 1),
    "an old version": ("id = 'k015' and fare = 1", 0),
    "several keys": ("id in ('k006', 'k016', 'k999')", 2),
    "null": ("city is null", 0),
    "or": ("id = 'k006' or ts = 2", 21),
}


@pytest.mark.parametrize(("where", "expected"), WHERES.values(), ids=WHERES.keys())
def test_a_scan_with(where: Any, expected: int, scanned: mdt.Table) -> None:
    scan = scanned.scan(where)
    assert scan.count() == len(scan.to_arrow()) == expected
    batches = list(scan.to_batches())
    assert all(isinstance(batch, pa.RecordBatch) and batch.schema == SCHEMA for batch in batches)
    assert sum(map(len, batches)) == expected


def test_a_scan_returns_the_columns_that_were_asked_for_in_their_order(scanned: mdt.Table) -> None:
    wanted = ["fare", "_hoodie_record_key", "id", "_hoodie_partition_path"]
    found = scanned.scan("ts = 2", columns=wanted).to_arrow()
    assert found.column_names == wanted
    assert found["_hoodie_record_key"].to_pylist() == found["id"].to_pylist()
    assert set(found["_hoodie_partition_path"].to_pylist()) == {"city=x", "city=y"}
    assert scanned.scan(columns="id").to_arrow().column_names == ["id"]
    assert scanned.scan("fare > 100", columns=wanted).to_arrow().schema.names == wanted
    times = scanned.scan(
        columns=["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"]
    ).to_arrow()
    assert set(times["_hoodie_commit_time"].to_pylist()) == set(
        scanned.history()["instant"].to_pylist()[1:3]
    )
    assert len(set(times["_hoodie_commit_seqno"].to_pylist())) == 25


def test_explain_says_what_is_read_and_what_each_index_did(scanned: mdt.Table) -> None:
    explained = scanned.scan("id = 'k006'").explain()
    assert (explained.seq, explained.where) == (3, "id = 'k006'")
    assert (explained.files_total, explained.files_read) == (len(scanned.files()), 1)
    assert {note.index for note in explained.indexes} == {
        "key:record",
        "partition_stats",
        "column_stats",
    }
    assert "1 of" in str(explained) and "key:record" in str(explained)
    assert scanned.scan().explain().rows_read == scanned.scan().explain().rows_total


def test_a_scan_stays_at_its_snapshot(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA)
    table.upsert(rows(range(5)))
    scan = table.scan()
    table.delete(rows(range(5)))
    assert scan.count() == len(scan.to_arrow()) == 5
    assert table.scan().count() == 0
    assert [
        int((table.snapshot(s).rows - table.snapshot(s).dead_rows).sum()) for s in range(3)
    ] == [0, 5, 0]


def test_history_has_a_row_for_each_commit_and_files_one_for_each_file(scanned: mdt.Table) -> None:
    history = scanned.history().to_pylist()
    assert [h["operation"] for h in history] == ["create", "upsert", "upsert", "delete"]
    assert [h["seq"] for h in history] == [0, 1, 2, 3]
    assert [(h["inserted"], h["updated"], h["deleted"]) for h in history][1:] == [
        (20, 0, 0),
        (10, 10, 0),
        (0, 0, 5),
    ]
    files = scanned.files()
    assert set(files["partition"].to_pylist()) == {"city=x", "city=y"}
    folder = Path(scanned.storage.local_path("") or "")
    for file in files.to_pylist():
        assert (folder / file["partition"] / file["name"]).stat().st_size == file["size"]


def test_properties_describe_the_table(scanned: mdt.Table) -> None:
    assert scanned.schema == SCHEMA
    assert (scanned.definition.key, scanned.definition.partition_by) == (("id",), ("city",))
    assert (scanned.definition.table_type, scanned.definition.scope) == (
        "MERGE_ON_READ",
        "partition",
    )
    assert "key=id" in repr(scanned) and scanned.path in repr(scanned)


@BOTH
def test_compact_does_nothing_when_there_is_nothing_to_do(table_type: str, tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, table_type=table_type)
    assert (table.compact().seq, table.compact().instant) == (0, "")
    table.upsert(rows(range(5)))
    assert table.compact().instant == ""
    table.upsert(rows(range(3), 2))
    before = trees.ordered(table.scan().to_arrow())
    done: list[tuple[int, int]] = []
    assert bool(table.compact(lambda n, of: done.append((n, of))).instant) == (
        table_type == "MERGE_ON_READ"
    )
    assert done == ([(1, 1)] if table_type == "MERGE_ON_READ" else [])
    assert table.compact().instant == ""
    assert trees.assert_readers_agree(table, tmp_path / "t") == before


def test_check_names_a_damaged_file_and_counts_what_it_saw(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA)
    table.upsert(rows(range(5)))
    seen: list[tuple[int, int]] = []
    report = table.check(lambda n, of: seen.append((n, of)))
    assert (
        report.ok and (report.files, report.rows, report.records) == (1, 5, 2) and seen == [(1, 1)]
    )
    file = next((tmp_path / "t").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-10])
    report = mdt.open(tmp_path / "t").check()
    assert not report.ok and any(file.name in problem.path for problem in report.problems)
    assert file.name in str(report)


def test_rollback_of_nothing_is_nothing(scanned: mdt.Table) -> None:
    found = scanned.abort()
    assert (found.published, found.rolled_back, found.files_removed) == ((), (), 0)


def test_an_open_table_sees_what_others_write(tmp_path: Path) -> None:
    first = trees.create(tmp_path / "t", SCHEMA)
    second = mdt.open(tmp_path / "t")
    first.upsert(rows(range(5)))
    assert second.scan().count() == 5
    second.upsert(rows(range(5, 8)))
    assert first.scan().count() == mdt.open(tmp_path / "t").scan().count() == 8


def test_options_are_kept_and_overridden_at_open(tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {"mdt.max.file.bytes": 2048, "mdt.durable": False, "hoodie.table.name": "rides"}
    table = mdt.create(path, SCHEMA, ["id"], options=options)
    assert table.definition.name == "rides"
    assert mdt.open(path).options.max_file_bytes == 2048 and not mdt.open(path).options.durable
    changed = mdt.open(path, {"hoodie.parquet.max.file.size": 1 << 20, "mdt.compression": "snappy"})
    assert (changed.options.max_file_bytes, changed.options.compression) == (1 << 20, "snappy")
    assert mdt.open(path).options.compression == "lz4"


def test_tuning_options_shape_the_files(tmp_path: Path) -> None:
    data = pa.table(
        {"id": [f"k{i:05}" for i in range(5000)], "v": np.arange(5000, dtype=np.int64)},
        pa.schema([("id", pa.string()), ("v", pa.int64())]),
    )
    small = {"mdt.max.file.bytes": 8_192, "mdt.small.file.bytes": 0, "mdt.row.group.rows": 1024}
    table = trees.create(
        tmp_path / "t", data.schema, options={**small, "mdt.column.stats.columns": "v"}
    )
    table.upsert(data)
    assert len(table.files()) > 2
    assert table.scan("v = 4321").explain().files_read == 1
    assert {"id", "v"} >= set(table.snapshot().stats["column"].to_pylist()) >= {"v"}
    big = trees.create(tmp_path / "u", data.schema, options={"mdt.row.group.rows": 1024})
    big.upsert(data)
    assert [len(z) for z in big.files()["row_group_rows"].to_pylist()] == [5]
    assert big.scan("v = 4321").explain().row_groups_read == 1
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.assert_readers_agree(
        big, tmp_path / "u"
    )


def test_the_metadata_is_compacted_as_often_as_the_option_says(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, options={"mdt.metadata.compact.records": 2})
    for i in range(5):
        table.upsert(rows(range(i, i + 3), i))
    checkpoints = tmp_path / "t" / ".hoodie" / ".mdt" / "checkpoints"
    assert len(list(checkpoints.glob("*.manifest"))) == 2
    assert len(trees.assert_readers_agree(mdt.open(tmp_path / "t"), tmp_path / "t")) == 7


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
KEYS: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "int64": (pa.int64(), [-(2**63), 0, 2**63 - 1], "0"),
    "int32": (pa.int32(), [-5, 0, 7], "-5"),
    "bool": (pa.bool_(), [True, False], "true"),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29)], "2024-02-29"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [MOMENT, MOMENT - timedelta(days=30000)],
        "1709209815123456",
    ),
    "milliseconds": (
        pa.timestamp("ms", "UTC"),
        [datetime(2024, 1, 1, tzinfo=UTC)],
        "1704067200000000",
    ),
    "text": (pa.string(), ["a", " ", "Ä", "a,b:c", "\n", "🚲"], "a,b:c"),
}


@BOTH
@pytest.mark.parametrize(("type", "values", "text"), KEYS.values(), ids=KEYS.keys())
def test_a_key_of_type(
    type: pa.DataType, values: list[Any], text: str, table_type: str, tmp_path: Path
) -> None:
    schema = pa.schema([("k", type), ("v", pa.int64())])
    path = tmp_path / "t"
    table = trees.create(path, schema, ["k"], table_type=table_type)
    data = pa.table({"k": values, "v": list(range(len(values)))}, schema)
    assert table.upsert(data).inserted == len(values)
    assert table.upsert(data).updated == len(values)
    assert trees.assert_readers_agree(table, path) == trees.ordered(data)
    assert text in table.scan(columns=["_hoodie_record_key"]).to_arrow()[0].to_pylist()
    assert table.delete(data.slice(0, 1)).deleted == 1
    assert trees.assert_readers_agree(table, path) == trees.ordered(data.slice(1))


ZONED = pa.timestamp("ms", "Europe/Berlin")
RICH = {
    "tags": (pa.list_(pa.string()), [["a", None], [], None]),
    "place": (
        pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.string()))]),
        [{"lat": 1.5, "names": ["x"]}] * 3,
    ),
    "props": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None]),
    "price": (pa.decimal128(20, 3), [Decimal("12345678901234567.891"), Decimal("-0.001"), None]),
    "raw": (pa.binary(), [b"\x00\xff", b"", None]),
    "day": (pa.date32(), [date(2024, 1, 1), None, date(1969, 12, 31)]),
    "at": (ZONED, [datetime(2024, 7, 1, 12, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]),
    "small": (pa.int16(), [1, None, -1]),
    "flag": (pa.bool_(), [True, None, False]),
    "real": (pa.float32(), [1.5, None, float("inf")]),
    "label": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "x"]),
    "wide": (pa.large_string(), ["x" * 1000, None, ""]),
}


@BOTH
def test_every_kind_of_column_comes_back(table_type: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), *((name, type) for name, (type, _) in RICH.items())])
    columns = [pa.array([1, 2, 3]), *(pa.array(values, type) for type, values in RICH.values())]
    data = pa.table(columns, schema=schema)
    path = tmp_path / "t"
    table = trees.create(path, schema, table_type=table_type)
    for part in (data, data.slice(0, 2)):
        table.upsert(part)
    assert trees.assert_readers_agree(table, path) == trees.ordered(data)
    assert table.schema == schema
    assert table.scan("price < 0").to_arrow()["id"].to_pylist() == [2]


@BOTH
def test_keys_of_a_megabyte(table_type: str, tmp_path: Path) -> None:
    long = "k" * (1 << 20)
    data = pa.table({"id": [long + "a", long + "b", "k"], "v": [1, 2, 3]})
    table = trees.create(tmp_path / "t", data.schema, table_type=table_type)
    assert table.upsert(data).inserted == 3
    assert table.upsert(data.slice(1)).updated == 2
    assert table.delete(data.slice(0, 1)).deleted == 1
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(data.slice(1))
    assert table.scan([("id", "=", long + "b")]).to_arrow()["v"].to_pylist() == [2]


def test_the_newest_of_repeated_keys_wins(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, ordering="ts")
    three = pa.concat_tables(
        [rows(range(1), 2, 20.0), rows(range(1), 3, 30.0), rows(range(1), 1, 10.0)]
    )
    assert counts(table.upsert(three)) == (1, 0, 0, 2, 0)
    assert trees.assert_readers_agree(table, tmp_path / "t")[0]["fare"] == 30.0
    plain = trees.create(tmp_path / "p", SCHEMA)
    assert counts(plain.upsert(three)) == (1, 0, 0, 2, 0)
    assert trees.assert_readers_agree(plain, tmp_path / "p")[0]["fare"] == 10.0


def test_the_kinds_of_error_are_told_apart() -> None:
    kinds = (
        mdt.Conflict,
        mdt.Corrupt,
        mdt.Expired,
        mdt.Internal,
        mdt.Invalid,
        mdt.Unavailable,
        mdt.Unsupported,
    )
    assert all(issubclass(kind, mdt.MdtError) for kind in kinds)
    assert {kind for kind in kinds if kind.retryable} == {mdt.Conflict, mdt.Unavailable}
    assert issubclass(Invalid, ValueError)
    assert str(Invalid("what", hint="how")) == "what\n  hint: how"
    assert set(mdt.__all__) <= set(dir(mdt)) and mdt.__version__


def test_partition_directories_without_column_names(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int32())])
    data = pa.table({"id": ["a", "b", "c"], "p": ["x/y", "b=c", None], "n": [1, 2, 3]}, schema)
    table = trees.create(
        tmp_path / "t", schema, partition_by=["p", "n"], options={"mdt.hive.style": "false"}
    )
    table.upsert(data)
    assert table.upsert(data).updated == 3
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(data)
    assert "x%2Fy/1" in table.files()["partition"].to_pylist()
    for name in (".", "..", ".hoodie"):
        with pytest.raises(Invalid, match="is reserved"):
            table.upsert(data.set_column(1, "p", pa.array([name] * 3)))


@pytest.mark.parametrize(
    ("key_index", "options", "expected"),
    [
        ("bloom", {}, True),
        ("record", {}, False),
        ("bloom", {"mdt.write.footer.bloom": False}, False),
        ("record", {"mdt.write.footer.bloom": True}, True),
    ],
)
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_hudi_s_bloom_filter_stands_in_every_base_file_of_tables_with_the_key_index_bloom(
    key_index: str, options: dict[str, bool], expected: bool, table_type: str, tmp_path: Path
) -> None:
    table = trees.create(
        tmp_path / "t", SCHEMA, key_index=key_index, table_type=table_type, options=options
    )
    table.upsert(rows(range(50)))
    table.upsert(rows(range(10, 20)))
    table.delete(rows(range(40)))
    table.compact()
    table.delete(rows(range(50)))
    table.compact()
    footers = [pq.read_metadata(file).metadata for file in (tmp_path / "t").glob("*.parquet")]
    assert len(footers) >= 3
    for footer in footers:
        assert (
            (b"org.apache.hudi.bloomfilter" in footer)
            == (b"hoodie_bloom_filter_type_code" in footer)
            == expected
        )


def test_the_filter_in_a_footer_is_the_one_that_hudi_reads(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, options={"mdt.bloom.fpp": 1e-6})
    table.upsert(rows(range(50)))
    footer = pq.read_metadata(next((tmp_path / "t").glob("*.parquet"))).metadata
    text, code = (
        footer[b"org.apache.hudi.bloomfilter"],
        footer[b"hoodie_bloom_filter_type_code"].decode(),
    )
    asked = pa.array([f"k{i:03}" for i in range(100)])
    assert hudi_bloom.may_contain(text, code, asked).tolist() == [True] * 50 + [False] * 50
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(rows(range(50)))


def test_the_filters_of_the_key_index_grow_with_the_precision_asked_for(tmp_path: Path) -> None:
    def unit_bytes(name: str, options: dict[str, object], at_open: dict[str, object]) -> int:
        trees.create(tmp_path / name, SCHEMA, options=options)
        table = mdt.open(tmp_path / name, at_open)
        table.upsert(rows(range(1000)))
        return sum(key_part.size for key_part in table.snapshot().key_parts)

    plain = unit_bytes("plain", {}, {})
    assert unit_bytes("kept", {"mdt.bloom.fpp": 1e-6}, {}) > 1.5 * plain
    assert unit_bytes("open", {}, {"mdt.bloom.fpp": 1e-6}) > 1.5 * plain


def test_metadata_compaction_can_be_set_at_open(tmp_path: Path) -> None:
    trees.create(tmp_path / "t", SCHEMA)
    mdt.open(tmp_path / "t", {"hoodie.metadata.compact.max.delta.commits": 1}).upsert(
        rows(range(3))
    )
    assert (tmp_path / "t" / ".hoodie" / ".mdt" / "hint").exists()


@pytest.mark.parametrize("durable", [True, False])
def test_files_are_flushed_unless_the_table_says_otherwise(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.durable": durable})
    flushed: list[int] = []
    monkeypatch.setattr("mdt.stores.local.os.fsync", flushed.append)
    mdt.open(tmp_path / "t").upsert(rows(range(3)))
    assert bool(flushed) == durable


@BOTH
def test_a_table_takes_every_type_that_it_was_created_with(table_type: str, tmp_path: Path) -> None:
    given = {
        "naive": pa.array([datetime(2024, 1, 1)], pa.timestamp("us")),
        "seconds": pa.array([datetime(2024, 1, 1)], pa.timestamp("s")),
        "naives": pa.array([[datetime(2024, 1, 1), None]], pa.list_(pa.timestamp("ms"))),
        "pair": pa.array([[1, 2]], pa.list_(pa.int16(), 2)),
        "large": pa.array([[1]], pa.large_list(pa.uint8())),
        "tag": pa.array([b"abc"], pa.binary(3)),
        "day": pa.array([date(2024, 1, 1)], pa.date64()),
        "half": pa.array([np.float16(1.5)], pa.float16()),
        "money": pa.array([Decimal("1.25")], pa.decimal256(38, 2)),
        "word": pa.array(["x"], pa.dictionary(pa.int8(), pa.large_string())),
        "unsigned": pa.array([2**32 - 1], pa.uint32()),
    }
    data = pa.table({"id": [1], **given})
    table = trees.create(tmp_path / "t", data.schema, table_type=table_type)
    assert (table.insert(data).inserted, mdt.open(tmp_path / "t").upsert(data).updated) == (1, 1)
    assert trees.assert_readers_agree(table, tmp_path / "t") == data.to_pylist()
