"""Frames that are nothing but columns of Parquet files are read from these: with the rows that Spark makes of them, and no other frames are."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from reader import bag, hudi_table

import mdt
from mdt.engines import plain_files as files_read
from mdt.engines.plain_files import FILES_MAX, PlainFiles, decoded, encoded
from mdt.engines.spark import engine
from mdt.engines.spark.engine import plain_files, schema_of
from mdt.errors import Conflict

ROWS = 500
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int64(), []),
    "tiny": (pa.int8(), [-128, 127, None]),
    "small": (pa.int16(), [-(1 << 15), None, 7]),
    "whole": (pa.int32(), [None, -(1 << 31), (1 << 31) - 1]),
    "ok": (pa.bool_(), [True, None, False]),
    "half": (pa.float32(), [0.5, float("nan"), None, -0.0]),
    "fare": (pa.float64(), [1e300, float("-inf"), None]),
    "price": (pa.decimal128(7, 2), [Decimal("-12345.67"), None, Decimal("0.01")]),
    "long_price": (pa.decimal128(38, 10), [Decimal("-" + "1" * 28), None, Decimal("9" * 28)]),
    "name": (pa.string(), ["straße", "", None, "x" * 5000]),
    "raw": (pa.binary(), [b"\xff\x00", None, b""]),
    "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), None, date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(1500, 1, 1, tzinfo=UTC), None, datetime(2024, 3, 10, 1, 2, 3, 4, UTC)]),
    "wall": (pa.timestamp("us"), [datetime(2024, 3, 10, 2, 30), None]),
}
EVERYWHERE: list[dict[str, Any]] = [{}, {"mdt.spark.local.bytes.max": 0}]


def rows(count: int = ROWS, first: int = 0) -> pa.Table:
    columns = {
        name: pa.array([values[i % len(values)] for i in range(count)] if values else range(first, first + count), type)
        for name, (type, values) in VALUES.items()
    }
    return pa.table(columns)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three files of several row groups, and one without rows."""
    folder = tmp_path / "given files"
    folder.mkdir()
    for number in range(3):
        pq.write_table(rows(first=number * ROWS), folder / f"{number} ä%.parquet", row_group_size=150)
    pq.write_table(rows(0), folder / "empty.parquet")
    return folder


def upserted(path: Path, frame: DataFrame, **options: Any) -> pa.Table:
    """Return the rows of a new table that has those of a frame, which hudi-rs has read, too."""
    definition = schema_of(frame)
    table = mdt.create(path, definition, key=["id"], options={"mdt.durable": False, **options})
    table.upsert(frame)
    found = table.scan().to_arrow()
    assert bag(hudi_table(path, definition)) == bag(found)
    return found


@pytest.mark.parametrize("options", EVERYWHERE, ids=["in process", "in tasks"])
@pytest.mark.parametrize("by", ["pyarrow", "spark"])
def test_the_rows_are_those_of_spark(
    spark: SparkSession, files: Path, tmp_path: Path, by: str, options: dict[str, Any]
) -> None:
    given = files
    if by == "spark":
        given = tmp_path / "by spark"
        spark.read.parquet(str(files)).write.parquet(str(given))
    frame = spark.read.parquet(str(given))
    assert plain_files(frame) is not None
    found = upserted(tmp_path / "read here", frame, **options)
    expected = upserted(tmp_path / "read by Spark", frame, **options, **{"mdt.spark.plain.files": False})
    assert len(found) == 3 * ROWS
    assert found.schema == expected.schema
    assert bag(found) == bag(expected)


@pytest.mark.parametrize("options", EVERYWHERE, ids=["in process", "in tasks"])
def test_columns_may_be_chosen_put_in_another_order_and_called_otherwise(
    spark: SparkSession, files: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    frame = spark.read.parquet(str(files)).select(
        "name", "id", sf.col("whole").alias("fare"), sf.col("name").alias("again")
    )
    told = plain_files(frame)
    assert told is not None and told.columns == ("name", "id", "whole", "name")
    found = upserted(tmp_path / "t", frame, **options).sort_by("id").select(["name", "id", "fare", "again"])
    data = pa.concat_tables([rows(first=number * ROWS) for number in range(3)])
    expected = pa.table({"name": data["name"], "id": data["id"], "fare": data["whole"], "again": data["name"]})
    assert bag(found) == bag(expected)


def test_files_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "empty.parquet")
    frame = spark.read.parquet(str(tmp_path / "empty.parquet"))
    for number, options in enumerate(EVERYWHERE):
        assert len(upserted(tmp_path / f"t{number}", frame, **options)) == 0


def _with_condition(frame: DataFrame) -> DataFrame:
    return frame.where("whole > 1")


def _computed(frame: DataFrame) -> DataFrame:
    return frame.withColumn("whole", sf.col("whole") + 1)


def _cast(frame: DataFrame) -> DataFrame:
    return frame.withColumn("whole", sf.col("whole").cast("bigint"))


def _of_files(frame: DataFrame) -> DataFrame:
    return frame.withColumn("file", sf.input_file_name())


def _of_metadata(frame: DataFrame) -> DataFrame:
    return frame.select("id", sf.col("_metadata.file_path").alias("file"))


def _cached(frame: DataFrame) -> DataFrame:
    return frame.cache()


@pytest.mark.parametrize(
    "made",
    [
        _with_condition, _computed, _cast, _of_files, _of_metadata, _cached, lambda frame: frame.limit(3), lambda frame: frame.distinct(),
        lambda frame: frame.unionAll(frame), lambda frame: frame.sample(0.5), lambda frame: frame.sort("id"),
        lambda frame: frame.join(frame.select("id"), "id"), lambda frame: frame.repartition(3), lambda frame: frame.selectExpr("id", "uuid() u"),
    ],
)  # fmt: skip
def test_what_else_a_frame_does_is_done_by_spark(
    spark: SparkSession, files: Path, made: Callable[[DataFrame], DataFrame]
) -> None:
    frame = made(spark.read.parquet(str(files)))
    assert plain_files(frame) is None
    frame.unpersist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true"), ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"), ("spark.sql.parquet.fieldId.read.enabled", "true"),
        ("spark.sql.parquet.inferTimestampNTZ.enabled", "false"),
    ],
)  # fmt: skip
def test_a_session_may_want_another_reader(spark: SparkSession, files: Path, name: str, value: str) -> None:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        assert plain_files(spark.read.parquet(str(files))) is None
    finally:
        spark.conf.set(name, str(before))
    assert plain_files(spark.read.parquet(str(files))) is not None


def test_other_sources_are_read_by_spark(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(files))
    frame.select("id", "whole").write.partitionBy("whole").parquet(str(tmp_path / "partitioned"))
    frame.select("id", "name").write.csv(str(tmp_path / "csv"))
    frame.select("id", sf.struct("whole").alias("nested")).write.parquet(str(tmp_path / "nested"))
    assert plain_files(spark.read.parquet(str(tmp_path / "partitioned"))) is None
    assert plain_files(spark.read.csv(str(tmp_path / "csv"))) is None
    assert plain_files(spark.read.parquet(str(tmp_path / "nested"))) is None
    assert plain_files(spark.read.option("datetimeRebaseMode", "LEGACY").parquet(str(files))) is None
    assert plain_files(spark.read.schema("id int").parquet(str(files))) is None
    assert plain_files(spark.read.schema("ID bigint").parquet(str(files))) is None
    assert plain_files(spark.read.schema("id bigint, absent int").parquet(str(files))) is None
    assert plain_files(spark.range(5).toDF("id")) is None


@pytest.mark.parametrize(
    "table", [pa.table({"a": pa.array([1], pa.uint32())}), pa.table({"a": pa.array([1], pa.timestamp("ms"))})]
)
def test_types_that_spark_reads_as_others(spark: SparkSession, tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    assert plain_files(spark.read.parquet(str(tmp_path / "a.parquet"))) is None


def test_files_of_which_not_all_are_alike(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "x": [1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2]}), tmp_path / "b.parquet")
    assert plain_files(spark.read.option("mergeSchema", "true").parquet(str(tmp_path))) is None
    assert plain_files(spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).select("id")) is not None


def test_texts_in_other_forms_of_arrow(spark: SparkSession, tmp_path: Path) -> None:
    texts = pa.array(["a", None, "b", "a"])
    forms = {
        "large": texts.cast(pa.large_string()),
        "codes": texts.dictionary_encode(),
        "view": texts.cast(pa.string_view()),
    }
    pq.write_table(pa.table({"id": pa.array(range(4)), **forms}), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    assert plain_files(frame) is not None
    found = upserted(tmp_path / "t", frame).sort_by("id")
    assert all(found[name].to_pylist() == texts.to_pylist() for name in forms)


@pytest.mark.parametrize("told", [{"org.apache.spark.legacyDateTime": ""}, {"org.apache.spark.version": "2.4.8"}])
def test_times_in_an_old_calendar(spark: SparkSession, tmp_path: Path, told: dict[str, str]) -> None:
    data = pa.table({"id": [1], "day": pa.array([date(1200, 1, 1)])})
    pq.write_table(data.replace_schema_metadata(told), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    assert plain_files(frame) is None
    assert plain_files(frame.select("id")) is not None


def test_times_of_96_bits(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table({"id": [1], "at": pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))})
    pq.write_table(data, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    known = plain_files(frame)
    assert known is not None
    assert known.table()["at"].to_pylist() == [datetime(2024, 1, 1, tzinfo=UTC)]
    assert plain_files(spark.read.schema("id bigint, at timestamp_ntz").parquet(str(tmp_path / "a.parquet"))) is None


def test_more_files_than_footers_are_looked_at() -> None:
    assert PlainFiles.of([("nowhere", 1)] * (FILES_MAX + 1), ["id"], pa.schema({"id": pa.int64()})) is None


@pytest.mark.parametrize("options", EVERYWHERE, ids=["in process", "in tasks"])
def test_a_damaged_file_is_spark_s_to_tell(
    spark: SparkSession, files: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    frame = spark.read.parquet(str(files))
    damaged = min(files.glob("1*"))
    data = bytearray(damaged.read_bytes())
    data[4:2000] = bytes(1996)
    damaged.write_bytes(data)
    table = mdt.create(tmp_path / "t", schema_of(frame), key=["id"], options={"mdt.durable": False, **options})
    with pytest.raises((PySparkException, Py4JJavaError)):
        table.upsert(frame)
    assert len(table.scan().to_arrow()) == 0


def test_a_file_that_is_another_one_by_now(spark: SparkSession, files: Path) -> None:
    frame = spark.read.parquet(str(files))
    known = plain_files(frame)
    assert known is not None
    pq.write_table(rows(7), min(files.glob("1*")))
    assert plain_files(frame) is None
    with pytest.raises(Conflict):
        list(known.batches(decoded(encoded(known.pieces))))


def test_row_groups_are_dealt_once_and_evenly(files: Path) -> None:
    known = PlainFiles.of(
        [(str(file), os.path.getsize(file)) for file in sorted(files.glob("*.parquet"))],
        ["id"],
        pa.schema({"id": pa.int64()}),
    )
    assert known is not None
    for parts in (1, 2, 5, 12, 100):
        dealt = known.dealt(parts)
        assert len(dealt) == min(parts, 12)
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
        found = [id for part in dealt for batch in known.batches(part) for id in batch["id"].to_pylist()]
        assert sorted(found) == list(range(3 * ROWS))


@pytest.mark.parametrize("batch_rows", [7, 64, 1000])
def test_few_row_groups_are_cut_and_every_row_is_read_once_in_its_place(
    tmp_path: Path, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_read, "_CUT_ROWS_MIN", 10)
    monkeypatch.setattr(files_read, "_BATCH_ROWS", batch_rows)
    schema = pa.schema({"id": pa.int64()})
    pq.write_table(pa.table({"id": range(130)}), tmp_path / "1.parquet", row_group_size=100)
    known = PlainFiles.of([(str(tmp_path / "1.parquet"), os.path.getsize(tmp_path / "1.parquet"))], ["id"], schema)
    assert known is not None
    for parts, expected in ((1, 1), (2, 2), (3, 3), (4, 4), (8, 7), (100, 13)):
        dealt = [decoded(encoded(part)) for part in known.dealt(parts)]
        assert len(dealt) == expected
        found = [[id for batch in known.read(part) for id in batch["id"].to_pylist()] for part in dealt]
        assert all(found)
        assert [id for part in found for id in part] == list(range(130))


def test_of_rows_with_one_key_in_two_parts_of_a_row_group_the_last_one_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_read, "_CUT_ROWS_MIN", 10)
    monkeypatch.setattr(engine, "_ALONE_BYTES", 0)
    given = pa.table({"id": [n % 100 for n in range(350)], "n": range(350)})
    pq.write_table(given, tmp_path / "1.parquet")
    table = mdt.create(tmp_path / "t", given.schema, ["id"], options={"mdt.spark.local.bytes.max": 0})
    table.upsert(given.slice(0, 5))
    cut: list[int] = []
    dealt = PlainFiles.dealt
    monkeypatch.setattr(PlainFiles, "dealt", lambda self, parts: (cut.append(parts), dealt(self, parts))[1])
    table.upsert(spark.read.parquet(str(tmp_path / "1.parquet")))
    assert cut and min(cut) > 1
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": n, "n": n + 300 if n < 50 else n + 200} for n in range(100)]
    assert bag(hudi_table(tmp_path / "t", given.schema)) == bag(table.scan().to_arrow())


def test_the_settings_are_those_of_the_frame_s_session(spark: SparkSession, files: Path) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    assert plain_files(other.read.parquet(str(files))) is None
    assert plain_files(spark.read.parquet(str(files))) is not None


def test_who_has_keys_of_encrypted_columns_reads_them(spark: SparkSession, files: Path) -> None:
    other = spark.newSession()
    frame = other.read.parquet(str(files))
    other.conf.set("parquet.crypto.factory.class", "of.some.Company")
    assert plain_files(frame) is None


@pytest.mark.parametrize(
    ("version", "has_days", "has_instants"), [("3", False, False), ("3.0.1", True, False), ("3.1.0", True, True)]
)
def test_calendars_of_versions(
    spark: SparkSession, tmp_path: Path, version: str, has_days: bool, has_instants: bool
) -> None:
    data = pa.table({"day": pa.array([date(1200, 1, 1)]), "at": pa.array([datetime(1200, 1, 1)], pa.timestamp("us"))})
    told = data.replace_schema_metadata({"org.apache.spark.version": version})
    pq.write_table(told, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    is_same = bag(frame.toArrow().cast(told.schema)) == bag(data)
    assert is_same == (has_days and has_instants)
    assert (plain_files(frame.select("day")) is not None) == has_days
    assert (plain_files(frame) is not None) == has_instants


@pytest.mark.parametrize("options", EVERYWHERE, ids=["in process", "in tasks"])
@pytest.mark.parametrize("micros", [-300_000_000_000_000_000, -9_000_000_000_000_000_000])
def test_times_of_96_bits_that_pyarrow_makes_others_of(
    spark: SparkSession, tmp_path: Path, micros: int, options: dict[str, Any]
) -> None:
    frame = spark.sql(f"SELECT 1L AS id, timestamp_micros({micros}L) AS at")
    frame.write.option("int96RebaseMode", "CORRECTED").parquet(str(tmp_path / "given"))
    frame = spark.read.parquet(str(tmp_path / "given"))
    known = plain_files(frame)
    assert known is not None
    with pytest.raises(pa.ArrowInvalid, match="plain.files=false"):
        known.table()
    table = mdt.create(tmp_path / "t", schema_of(frame), key=["id"], options={"mdt.durable": False, **options})
    table.upsert(frame)
    table.upsert(frame)
    assert table.scan().to_arrow()["at"].cast(pa.int64()).to_pylist() == [micros], "as Spark reads them"


def test_names_that_are_no_utf_8(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "zzzz": [2]}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"\xff\xfezz"))
    assert plain_files(spark.read.parquet(str(file)).select("id")) is None


@pytest.mark.parametrize("options", EVERYWHERE, ids=["in process", "in tasks"])
def test_a_value_that_is_another_one_by_now(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    writer = spark.range(0, 20_000, 1, 1).write.option("compression", "none")
    writer.option("parquet.enable.dictionary", "false").parquet(str(tmp_path / "given"))
    file = min((tmp_path / "given").glob("part-*"))
    data = bytearray(file.read_bytes())
    data[5000] ^= 4
    file.write_bytes(data)
    frame = spark.read.parquet(str(tmp_path / "given"))
    table = mdt.create(tmp_path / "t", schema_of(frame), key=["id"], options={"mdt.durable": False, **options})
    with pytest.raises((PySparkException, Py4JJavaError)):
        table.upsert(frame)
    assert len(table.scan().to_arrow()) == 0


def test_a_file_that_is_another_one_of_the_same_size_by_now(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(100)}), file, compression="none", use_dictionary=False)
    before = file.stat()
    known = plain_files(spark.read.parquet(str(file)))
    assert known is not None
    other = pa.table({"id": pa.array(range(100), pa.float64())})
    pq.write_table(other, file, compression="none", use_dictionary=False)
    assert file.stat().st_size == before.st_size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(Conflict):
        known.table()


def test_the_rows_come_in_the_order_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    for number, count in enumerate((20, 3000, 500)):
        data = pa.table({"id": range(count), "of": pa.array([number] * count)})
        pq.write_table(data, tmp_path / f"{number}.parquet", use_dictionary=False)
    frame = spark.read.parquet(str(tmp_path)).coalesce(1)
    expected = frame.toArrow().to_pylist()
    found = sorted((str(file), file.stat().st_size) for file in tmp_path.glob("*.parquet"))
    for given in (found, found[::-1]):  # a file system lists its files in an order of its own
        known = PlainFiles.of(given, ["id", "of"], schema_of(frame))
        assert known is not None
        assert known.table().to_pylist() == expected
