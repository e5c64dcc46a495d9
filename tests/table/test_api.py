"""The public API behaves as documented, and hudi-rs sees the same rows after each step."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trees
from texts import columns

import mdt
from indexes import hudi_bloom
from mdt import Invalid

SCHEMA = columns("id string, city string, ts int64, fare double")
BOTH = pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
KEY_INDEXES = pytest.mark.parametrize("key_index", ["bloom", "record"])


def rows(numbers, ts=1, fare=1.0):
    n = len(numbers)
    ids, cities = [f"k{i:03}" for i in numbers], [("x", "y")[i % 2] for i in numbers]
    return pa.table({"id": ids, "city": cities, "ts": [ts] * n, "fare": [fare] * n}, SCHEMA)


def counts(result):
    return result.inserted, result.updated, result.deleted, result.late, result.missing


@BOTH
@KEY_INDEXES
def test_inserts_upserts_deletes_and_compaction_return_counts_and_readers_agree(
    table_type, key_index, tmp_path
):
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
        (table.delete, rows(range(24, 30)), (0, 0, 1, 0, 5), 24),
        (table.delete, rows(range(24)), (0, 0, 24, 0, 0), 0),
        (table.delete, rows(range(24)), (0, 0, 0, 0, 24), 0),
        (table.upsert, rows(range(24), 1, 5.0), (24, 0, 0, 0, 0), 24),
    ]
    for write, data, expected, rows_left in steps:
        before = table.snapshot().seq
        result = write(data)
        assert counts(result) == expected
        is_commit = sum(expected[:3]) > 0
        assert result.seq == table.snapshot().seq == before + is_commit
        assert bool(result.instant) == is_commit
        assert (result.attempts, result.engine, result.warnings) == (1, "arrow", ())
        assert len(trees.assert_readers_agree(table, path)) == rows_left
    assert table.compact().seq == table.snapshot().seq
    assert trees.assert_readers_agree(mdt.open(path), path) == trees.ordered(data)


def test_a_table_is_opened_by_text_path_and_url(tmp_path, monkeypatch):
    mdt.create(tmp_path / "a b", SCHEMA, ["id"]).upsert(rows(range(3)))
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "a b").as_uri()
    for location in (tmp_path / "a b", str(tmp_path / "a b"), "a b", url):
        table = mdt.open(location)
        assert table.scan().count() == 3
        assert table.path == str(tmp_path / "a b")
    mdt.create((tmp_path / "by%url").as_uri(), SCHEMA, ["id"])
    mdt.create("relative", SCHEMA, ["id"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a b", "by%url", "relative"]


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    path = tmp_path_factory.mktemp("scan") / "t"
    table = trees.create(path, SCHEMA, partition_by=["city"], key_index="record")
    table.upsert(rows(range(20)))
    table.upsert(rows(range(10, 30), 2, 2.0))
    table.delete(rows(range(5)))
    return table


def test_a_scan_returns_the_requested_columns_in_their_order(scanned):
    names = ["fare", "_hoodie_record_key", "id", "_hoodie_partition_path"]
    result = scanned.scan("ts = 2", columns=names).to_arrow()
    assert result.column_names == names
    assert result["_hoodie_record_key"].to_pylist() == result["id"].to_pylist()
    assert set(result["_hoodie_partition_path"].to_pylist()) == {"city=x", "city=y"}
    assert scanned.scan(columns="id").to_arrow().column_names == ["id"]
    assert scanned.scan("fare > 100", columns=names).to_arrow().schema.names == names
    times = scanned.scan(
        columns=["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"]
    ).to_arrow()
    assert set(times["_hoodie_commit_time"].to_pylist()) == set(
        scanned.history()["instant"].to_pylist()[1:3]
    )
    assert len(set(times["_hoodie_commit_seqno"].to_pylist())) == 25
    batches = list(scanned.scan("id = 'k006' or ts = 2").to_batches())
    assert {batch.schema for batch in batches} == {SCHEMA} and sum(map(len, batches)) == 21


def test_explain_returns_the_files_read_and_a_note_for_each_index(scanned):
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


def test_history_has_a_row_per_commit_and_files_has_a_row_per_file(scanned):
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


def test_an_open_table_sees_the_commits_of_other_writers(tmp_path):
    first = trees.create(tmp_path / "t", SCHEMA)
    second = mdt.open(tmp_path / "t")
    first.upsert(rows(range(5)))
    assert second.scan().count() == 5
    scan = first.scan()
    second.upsert(rows(range(5, 8)))
    assert (first.scan().count(), scan.count()) == (8, 5), "a scan stays at its snapshot"


def test_stored_options_can_be_overridden_when_a_table_is_opened(tmp_path):
    path = tmp_path / "t"
    options = {"mdt.max.file.bytes": 2048, "mdt.durable": False, "hoodie.table.name": "rides"}
    table = mdt.create(path, SCHEMA, ["id"], options=options)
    assert table.definition.name == "rides"
    assert mdt.open(path).options.max_file_bytes == 2048 and not mdt.open(path).options.durable
    changed = mdt.open(path, {"hoodie.parquet.max.file.size": 1 << 20, "mdt.compression": "snappy"})
    assert (changed.options.max_file_bytes, changed.options.compression) == (1 << 20, "snappy")
    assert mdt.open(path).options.compression == "lz4"


def test_metadata_are_compacted_after_the_configured_number_of_records(tmp_path):
    table = trees.create(tmp_path / "t", SCHEMA, options={"mdt.metadata.compact.records": 2})
    checkpoints = tmp_path / "t" / ".hoodie" / ".mdt" / "checkpoints"
    for i in range(5):
        table.upsert(rows(range(i, i + 3), i))
    assert len(list(checkpoints.glob("*.manifest"))) == 2
    assert len(trees.assert_readers_agree(mdt.open(tmp_path / "t"), tmp_path / "t")) == 7
    after_each_commit = mdt.open(tmp_path / "t", {"hoodie.metadata.compact.max.delta.commits": 1})
    for i in range(2):
        after_each_commit.upsert(rows(range(3), 9 + i))
        assert after_each_commit.metadata.checkpoint_seq == 6 + i


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
KEYS = {
    "int64": ([-(2**63), 0, 2**63 - 1], "0"),
    "int32": ([-5, 0, 7], "-5"),
    "bool": ([True, False], "true"),
    "date32": ([date(1, 1, 1), date(2024, 2, 29)], "2024-02-29"),
    "timestamp[us]": ([MOMENT.replace(tzinfo=None)], "1709209815123456"),
    "timestamp[ms]": ([datetime(2024, 1, 1)], "1704067200000000"),
    "string": (["a", " ", "Ä", "a,b:c", "\n", "🚲"], "a,b:c"),
}


@BOTH
@pytest.mark.parametrize("type", KEYS)
def test_keys_of_each_type_can_be_written_and_read(type, table_type, tmp_path):
    values, text = KEYS[type]
    path = tmp_path / "t"
    data = pa.table({"k": values, "v": range(len(values))}, columns(f"k {type}, v int64"))
    table = trees.create(path, data.schema, ["k"], table_type=table_type)
    assert table.upsert(data).inserted == len(values)
    assert table.upsert(data).updated == len(values)
    assert trees.assert_readers_agree(table, path) == trees.ordered(data)
    assert text in table.scan(columns=["_hoodie_record_key"]).to_arrow()[0].to_pylist()
    assert table.delete(data.slice(0, 1)).deleted == 1
    assert trees.assert_readers_agree(table, path) == trees.ordered(data.slice(1))


@BOTH
def test_keys_of_a_megabyte_can_be_written_and_read(table_type, tmp_path):
    long = "k" * (1 << 20)
    data = pa.table({"id": [long + "a", long + "b", "k"], "v": [1, 2, 3]})
    table = trees.create(tmp_path / "t", data.schema, table_type=table_type)
    assert table.upsert(data).inserted == 3
    assert table.upsert(data.slice(1)).updated == 2
    assert table.delete(data.slice(0, 1)).deleted == 1
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(data.slice(1))
    assert table.scan([("id", "=", long + "b")]).to_arrow()["v"].to_pylist() == [2]


def test_error_classes_differ_in_retryability_and_show_their_hint():
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


def test_partition_directories_can_omit_column_names(tmp_path):
    data = pa.table({"id": ["a", "b", "c"], "p": ["x/y", "b=c", None], "n": [1, 2, 3]})
    table = trees.create(
        tmp_path / "t", data.schema, partition_by=["p", "n"], options={"mdt.hive.style": "false"}
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
@BOTH
def test_every_base_file_of_a_table_with_the_bloom_key_index_has_hudis_filter(
    key_index, options, expected, table_type, tmp_path
):
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


def test_the_filter_in_a_footer_has_hudis_format(tmp_path):
    table = trees.create(tmp_path / "t", SCHEMA, options={"mdt.bloom.fpp": 1e-6})
    table.upsert(rows(range(50)))
    footer = pq.read_metadata(next((tmp_path / "t").glob("*.parquet"))).metadata
    text, code = (
        footer[b"org.apache.hudi.bloomfilter"],
        footer[b"hoodie_bloom_filter_type_code"].decode(),
    )
    keys = pa.array([f"k{i:03}" for i in range(100)])
    assert hudi_bloom.may_contain(text, code, keys).tolist() == [True] * 50 + [False] * 50
    assert trees.assert_readers_agree(table, tmp_path / "t") == trees.ordered(rows(range(50)))


def test_the_filters_of_the_key_index_grow_with_the_requested_precision(tmp_path):
    def key_part_bytes(name, options, at_open):
        trees.create(tmp_path / name, SCHEMA, options=options)
        table = mdt.open(tmp_path / name, at_open)
        table.upsert(rows(range(1000)))
        return sum(key_part.size for key_part in table.snapshot().key_parts)

    plain = key_part_bytes("plain", {}, {})
    assert key_part_bytes("kept", {"mdt.bloom.fpp": 1e-6}, {}) > 1.5 * plain
    assert key_part_bytes("open", {}, {"mdt.bloom.fpp": 1e-6}) > 1.5 * plain


@pytest.mark.parametrize("durable", [True, False])
def test_files_are_flushed_unless_the_table_is_not_durable(durable, tmp_path, monkeypatch):
    mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.durable": durable})
    flushed = []
    monkeypatch.setattr("mdt.stores.local.os.fsync", flushed.append)
    mdt.open(tmp_path / "t").upsert(rows(range(3)))
    assert bool(flushed) == durable
