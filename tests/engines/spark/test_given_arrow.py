"""Arrow that was given to createDataFrame is taken back as it is, where every value is the one that Spark would make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import mdt
from mdt.engines.spark import engine, given, java_half, private
from mdt.engines.spark.given import given_arrow

LARGE = {
    "spark.sql.execution.arrow.localRelationThreshold": "1b",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    "truth": ([True, False], pa.bool_()),
    "byte": ([-128, 127], pa.int8()),
    "short": ([-(1 << 15), (1 << 15) - 1], pa.int16()),
    "int": ([-(1 << 31), (1 << 31) - 1], pa.int32()),
    "long": ([-(1 << 63), (1 << 63) - 1, 0], pa.int64()),
    "float": ([0.1, -0.0, float("nan"), float("inf"), -1e-45], pa.float32()),
    "double": ([0.1, -0.0, float("nan"), float("-inf"), 5e-324], pa.float64()),
    "text": (["", "zwölf 𝄞", "\0", "a" * 100], pa.string()),
    "bytes": ([b"", b"\xff\0", b"b" * 100], pa.binary()),
    "day": ([date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31), date(1969, 12, 31)], pa.date32()),
    "instant": (
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, 0, 123_456, tzinfo=UTC)],
        pa.timestamp("us", "UTC"),
    ),
    "time": ([datetime(1, 1, 1), datetime(2024, 3, 31, 2, 30, 0, 999_999), datetime(9999, 12, 31)], pa.timestamp("us")),
    "money": ([Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")], pa.decimal128(5, 2)),
    "much": ([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
    "nothing": ([None, None], pa.int64()),
}


def rows(count: int = 40) -> pa.Table:
    """Return a table with each type, of several pieces, that begins within another one; every fifth value is null."""
    columns = {
        name: pa.array([None if i % 5 == 3 else values[i % len(values)] for i in range(count + 3)], type)
        for name, (values, type) in VALUES.items()
    }
    table = pa.table(columns)
    return pa.concat_tables([table[3:12], table[12:]])


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Have settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def given_to(spark: SparkSession, table: pa.Table, **more: str) -> DataFrame:
    """Return a frame of Arrow that Spark takes for much, in batches of 7 rows."""
    with settings(spark, LARGE | more):
        return spark.createDataFrame(table)


def assert_same(found: pa.Table | None, frame: DataFrame) -> None:
    """Assert that Arrow is what Spark makes, sign of zero and order of rows included."""
    expected = frame.toArrow()
    assert found is not None
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def test_every_value_is_the_one_that_spark_makes(spark: SparkSession, zone: str) -> None:
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        frame = given_to(spark, rows())
        assert_same(given_arrow(frame), frame)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, None, 1_700_000_000] * 10, pa.timestamp("s")),
        pa.array([0, None, 1_700_000_000] * 10, pa.timestamp("ns", "Europe/Paris")),
        pa.array(["a", None, "b"] * 10, pa.large_string()),
        pa.array(["a", None, "b"] * 10).dictionary_encode(),
    ],
    ids=["seconds", "Paris", "large", "dictionary"],
)
@pytest.mark.parametrize("kind", ["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
def test_what_pyspark_casts_when_it_is_given_is_taken_as_cast(spark: SparkSession, values: pa.Array, kind: str) -> None:
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}):
        frame = given_to(spark, pa.table({"v": values}), **{"spark.sql.timestampType": kind})
        assert_same(given_arrow(frame), frame)


def test_columns_may_be_chosen_repeated_and_called_otherwise(spark: SparkSession) -> None:
    frame = given_to(spark, rows())
    other = frame.select("text", sf.col("long").alias("n"), "text", "truth").alias("x").select("x.*")
    assert_same(given_arrow(other), other)
    renamed = frame.withColumnRenamed("day", "a.b").drop("text")
    assert_same(given_arrow(renamed), renamed)


def test_a_frame_that_was_given_with_a_schema_is_what_that_says(spark: SparkSession) -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int64()), "b": ["x", None]})
    with settings(spark, LARGE):
        frame = spark.createDataFrame(table, schema=["n", "t"])
    assert_same(given_arrow(frame), frame)


def changed(frame: DataFrame, how: str) -> DataFrame:
    """Return a frame that is more than columns of ``frame``."""
    if how == "cached":
        frame = frame.select("*").persist()
        frame.count()
        return frame
    made = {
        "filtered": lambda: frame.where("long > 0"),
        "cast": lambda: frame.select(sf.col("int").cast("long")),
        "computed": lambda: frame.select(sf.col("int") + 1),
        "added": lambda: frame.withColumn("more", sf.lit(None).cast("int")),
        "cut": lambda: frame.limit(3),
        "joined": lambda: frame.unionAll(frame),
        "sorted": lambda: frame.orderBy("long"),
        "dealt": lambda: frame.repartition(2),
        "without columns": lambda: frame.select(),
        "mapped": lambda: frame.sparkSession.createDataFrame(frame.select("int").rdd, "int int"),
    }
    return made[how]()


@pytest.mark.parametrize(
    "how",
    [
        "filtered", "cast", "computed", "added", "cut", "joined", "sorted", "dealt", "cached", "without columns", "mapped",
    ],
)  # fmt: skip
def test_what_a_plan_does_is_left_to_spark(spark: SparkSession, how: str) -> None:
    frame = given_to(spark, rows())
    assert given_arrow(frame) is not None
    other = changed(frame, how)
    try:
        assert given_arrow(other) is None
    finally:
        other.unpersist()


def test_rows_that_spark_has_made_are_left_to_spark(spark: SparkSession) -> None:
    assert given_arrow(spark.createDataFrame(rows())) is None, "it is little"
    assert given_arrow(spark.range(5)) is None


@pytest.mark.parametrize(
    "type", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.null(), pa.duration("us")]
)  # fmt: skip
def test_types_that_may_be_others_in_rows_are_left_to_spark(spark: SparkSession, type: pa.DataType) -> None:
    frame = given_to(spark, pa.table({"id": [1, 2], "v": pa.nulls(2, type)}))
    assert given_arrow(frame) is None
    assert given_arrow(frame.select("id")) is not None or pa.types.is_null(type)


def test_texts_in_another_form_are_left_to_spark(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    one = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
    for table in (pa.table({"t": ["abc", "de"] * 9}), pa.table({"b": [b"abc", b""] * 9})):
        made_large = given_to(spark, table, **{name: "true"})
        single = given_to(spark, table, **{name: "true"}, **one)
        frame = given_to(spark, table)
        assert given_arrow(frame) is not None
        assert given_arrow(made_large) is None, "offsets have 64 bits"
        assert given_arrow(single) is None, "one row in each batch: its first offset and a half"
        with settings(spark, {name: "true"}):
            assert given_arrow(frame) is None, "who reads wants large texts"


def test_numbers_that_a_decimal_cannot_have_are_left_to_spark(spark: SparkSession) -> None:
    wrong = pa.Array.from_buffers(
        pa.decimal128(5, 2), 1, [None, pa.py_buffer((10**7).to_bytes(16, "little", signed=True))]
    )
    frame = given_to(spark, pa.table({"d": wrong}))
    assert given_arrow(frame) is None


def test_nulls_of_a_column_without_nulls_are_left_to_spark() -> None:
    field = pa.field("n", pa.int64(), nullable=False)
    with pytest.raises(pa.ArrowInvalid, match="n has nulls"):
        given._validate(pa.table([pa.array([1, None])], schema=pa.schema([field])))


@pytest.mark.parametrize("place", ["elsewhere", "nowhere"])
def test_a_jvm_that_writes_other_files_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    frame = given_to(spark, rows())
    factory = java_half.factory_of(spark.sparkContext)
    (tmp_path / "elsewhere").mkdir()

    class Elsewhere:
        def givenArrow(self, java: Any, file: str) -> Any:
            return factory.givenArrow(java, str(tmp_path / place / Path(file).name))

    monkeypatch.setattr(given, "factory_of", lambda context: Elsewhere())
    assert given_arrow(frame) is None
    assert len(list(tmp_path.rglob("mdt-given-*"))) == (place == "elsewhere")


def test_a_session_that_encrypts_its_files_writes_none(spark: SparkSession) -> None:
    frame = given_to(spark, rows())
    settings_of = private.java_session(spark).sparkContext().conf()
    settings_of.set("spark.io.encryption.enabled", "true")
    try:
        assert given_arrow(frame) is None
    finally:
        settings_of.remove("spark.io.encryption.enabled")
    assert given_arrow(frame) is not None


def test_a_write_takes_what_was_given(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows(100).append_column("id", pa.array(range(100)))
    frame = given_to(spark, table)
    taken: list[int] = []

    def noticed(frame: DataFrame) -> pa.Table | None:
        found = given_arrow(frame)
        taken.append(-1 if found is None else len(found))
        return found

    monkeypatch.setattr(engine, "given_arrow", noticed)
    there = mdt.create(tmp_path / "t", table.schema, ["id"])
    done = there.upsert(frame)
    assert (done.engine, done.inserted, taken) == ("arrow", 100, [100])
    found = there.scan().to_arrow().sort_by("id").select(table.column_names)
    assert repr(found.to_pylist()) == repr(table.to_pylist())
    filtered = there.upsert(frame.where("id < 10"))
    assert (filtered.engine, filtered.updated, taken) == ("arrow", 10, [100, -1])
