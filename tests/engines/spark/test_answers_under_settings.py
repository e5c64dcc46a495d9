"""Session settings that exist for files of other writers change no row of mdt's tables, and turn no
error into fewer rows.
"""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from sql_tables import settings

import mdt
import mdt.spark
from mdt.errors import Missing
from mdt.hudi import base_file

IN = pa.struct({"day": pa.date32(), "at": pa.timestamp("us", "UTC")})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "wall": pa.timestamp("us"),
        "inside": IN,
        "days": pa.list_(pa.date32()),
    }
)
DAYS = [date(1, 1, 1), date(1000, 2, 28), date(1582, 10, 4), date(2024, 1, 1), date(9999, 12, 31)]
SHOWN = """id, cast(day as string) day, cast(at as string) at, cast(wall as string) wall, cast(inside as string) inside,
    cast(days as string) days"""
LEGACY = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
}
REFUSING = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "EXCEPTION",
    "spark.sql.parquet.int96RebaseModeInRead": "EXCEPTION",
    "spark.sql.parquet.enableVectorizedReader": "false",
}


def rows(days):
    items = []
    for number, day in enumerate(days):
        at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        items.append(
            {
                "id": number,
                "day": day,
                "at": at,
                "wall": at.replace(tzinfo=None),
                "inside": {"day": day, "at": at},
                "days": [day],
            }
        )
    return pa.Table.from_pylist(items, SCHEMA)


def make(path, monkeypatch):
    """Return a table with base and log files that do not name the calendar of their dates, like
    files of older versions.
    """
    with monkeypatch.context() as patch:
        patch.setattr(base_file, "CALENDAR", {})
        table = mdt.create(path, SCHEMA, key=["id"], table_type="MERGE_ON_READ")
        table.bulk_insert(rows(DAYS))
        table.upsert(rows(DAYS[:2]))
    return table


@pytest.fixture
def old(spark, tmp_path, monkeypatch):
    mdt.spark.enable(spark)
    table = make(tmp_path / "t", monkeypatch)
    spark.sql("drop table if exists old_days")
    spark.sql(f"create table old_days using mdt location '{table.path}'")
    yield table
    spark.sql("drop table old_days")


def streamed(spark, path):
    query = (
        spark.readStream.format("mdt")
        .load(path)
        .writeStream.format("memory")
        .queryName("streamed_days")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    return spark.table("streamed_days")


WAYS = {
    "read": lambda spark, path: mdt.read(spark, path),
    "catalog": lambda spark, path: spark.table("old_days"),
    "format": lambda spark, path: spark.read.format("mdt").load(path),
    "as of": lambda spark, path: spark.read.format("mdt").option("as_of", 2).load(path),
    "since": lambda spark, path: spark.read.format("mdt").option("since", 0).load(path),
    "changes": (
        lambda spark, path: (
            spark.read.format("mdt").option("since", 0).option("changes", "net").load(path)
        )
    ),
    "stream": streamed,
    "scan": lambda spark, path: mdt.open(path).scan(where="id >= 0").to_spark(spark),
}


def answers(frame):
    """Return rows, results of filters, and least and greatest values, which Spark takes from
    metadata where it can.
    """
    spark = frame.sparkSession
    frame.createOrReplaceTempView("asked_days")
    results = [spark.sql(f"select {SHOWN} from asked_days order by id").collect()]
    for test in (
        "day = date'1000-02-28'",
        "at = timestamp'1000-02-28 12:00:00+00:00'",
        "wall < timestamp_ntz'1582-10-04 13:00:00'",
        "inside.day = date'0001-01-01'",
    ):
        results.append(spark.sql(f"select id from asked_days where {test} order by id").collect())
    results.append(
        spark.sql(
            "select cast(min(day) as string), cast(max(day) as string), cast(min(at) as string)"
            " from asked_days"
        ).collect()
    )
    return results


@pytest.mark.parametrize("way", sorted(WAYS))
def test_dates_do_not_depend_on_the_calendar_settings_of_the_session(spark, old, way):
    expected = answers(WAYS[way](spark, old.path))
    assert [row[0] for row in expected[1]] == [1] and [row[0] for row in expected[4]] == [0]
    for values in (LEGACY, REFUSING):
        with settings(spark, values):
            assert answers(WAYS[way](spark, old.path)) == expected


def test_an_update_under_the_legacy_calendar_setting_keeps_all_dates(spark, old):
    before = old.scan(order_by="id").to_arrow()
    with settings(spark, LEGACY):
        spark.sql(
            "update old_days set day = day, at = at where id + 0 < 4 and hash(inside) is not null"
        )
        spark.sql(
            "merge into old_days t using old_days s on t.id = s.id when matched then update set *"
        )
    assert old.scan(order_by="id").to_arrow().equals(before)


def test_spark_reads_dates_of_single_files_right_under_every_calendar_setting(spark, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    table.bulk_insert(rows(DAYS))
    files = [str(tmp_path / "t" / file["name"]) for file in table.files().to_pylist()]
    for mode in ("LEGACY", "EXCEPTION"):
        with settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": mode}):
            dates = spark.read.parquet(*files).selectExpr("cast(day as string)").collect()
        assert sorted(row[0] for row in dates) == [day.isoformat() for day in DAYS]


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_damaged_and_missing_files_raise_even_if_spark_is_set_to_ignore_them(
    spark, tmp_path, vectorized
):
    mdt.spark.enable(spark)
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    table.bulk_insert(rows(DAYS))
    spark.sql("drop table if exists damaged_days")
    spark.sql(f"create table damaged_days using mdt location '{table.path}'")
    file = tmp_path / "t" / table.files().to_pylist()[0]["name"]
    original = file.read_bytes()
    ignoring = {
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.parquet.enableVectorizedReader": vectorized,
    }
    with settings(spark, ignoring):
        frames = [
            mdt.read(spark, table.path),
            spark.table("damaged_days"),
            spark.read.format("mdt").load(table.path),
        ]
        file.write_bytes(
            original[:4] + bytes(byte ^ 16 for byte in original[4:-400]) + original[-400:]
        )
        for frame in frames:
            with pytest.raises(
                Exception, match="(?i)checksum|not as it was written|FAILED_READ_FILE"
            ):
                frame.toArrow()
        file.unlink()
        for frame in [mdt.read(spark, table.path), spark.table("damaged_days")]:
            with pytest.raises(Missing):
                frame.toArrow()
    spark.sql("drop table damaged_days")
