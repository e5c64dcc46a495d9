"""Declared columns on Spark: the table of docs/schema.md says what is shown, and times without zone
have their own digits.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from declared_types import GOOD, REQUIRED, types_in_readme
from pyspark.sql import SparkSession
from trees import create

import mdt
from mdt.errors import Invalid
from mdt.stores.storage import LocalStorage


def test_readme_says_what_spark_shows(spark: SparkSession, tmp_path: Path) -> None:
    said = types_in_readme()
    schema = pa.schema(
        [("id", pa.int64()), *((f"c{i}", type) for i, (type, _) in enumerate(said.values()))]
    )
    table = create(tmp_path / "t", schema)
    table.upsert(pa.table([pa.array([1]), *[pa.nulls(1)] * len(said)], names=schema.names))
    frame = mdt.read(spark, table.path)
    shown = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert {name: shown[f"c{i}"] for i, name in enumerate(said)} == {
        name: cells[2] for name, (_, cells) in said.items()
    }
    assert frame.collect()[0].asDict() == {"id": 1, **{f"c{i}": None for i in range(len(said))}}


def test_a_time_without_zone_has_its_digits_in_every_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    naive = pa.timestamp("us")
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", naive),
            ("s", pa.struct([("at", pa.timestamp("ms"))])),
            ("l", pa.list_(naive)),
        ]
    )
    table = create(
        tmp_path / "t", schema, indexes=["bitmap(at)"], options={"mdt.row.group.rows": 4}
    )
    noon = datetime(2026, 7, 1, 12)
    rows = [
        {"id": n, "at": noon.replace(hour=n), "s": {"at": noon}, "l": [noon, None]}
        for n in range(20)
    ]
    table.bulk_insert(pa.Table.from_pylist(rows, schema=schema))
    table.upsert(pa.Table.from_pylist(rows[:3], schema=schema))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        frame = mdt.read(spark, table.path)
        assert frame.schema["at"].dataType.simpleString() == "timestamp_ntz"
        found = frame.where(
            "at between timestamp_ntz'2026-07-01 02:00:00' and '2026-07-01 04:00:00'"
        ).orderBy("id")
        assert [(row.id, row.at, row.s.at, row.l) for row in found.collect()] == [
            (n, noon.replace(hour=n), noon, [noon, None]) for n in (2, 3, 4)
        ]
        scan = table.scan("at = '2026-07-01 05:00:00'")
        assert (
            [row.id for row in scan.to_spark(spark).collect()]
            == [5]
            == scan.to_arrow()["id"].to_pylist()
        )
        forced = mdt.open(
            LocalStorage(tmp_path / "t", durable=False), options={"mdt.spark.local.bytes.max": 0}
        )
        assert forced.upsert(frame.where("id >= 18")).updated == 2
        assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_required_fields_are_read_and_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.Table.from_pylist([GOOD, {**GOOD, "id": 2, "s": None, "l": None}], schema=REQUIRED)
    table = create(tmp_path / "t", REQUIRED)
    table.bulk_insert(data)
    table.upsert(data.slice(1))
    frame = mdt.read(spark, table.path)
    assert frame.where("v = 1 and id is not null").count() == 2
    forced = mdt.open(
        LocalStorage(tmp_path / "t", durable=False), options={"mdt.spark.local.bytes.max": 0}
    )
    assert forced.upsert(frame).updated == 2
    for name in (
        file["name"] for file in table.files().to_pylist() if file["name"].endswith(".parquet")
    ):
        assert (
            spark.read.parquet(str(tmp_path / "t" / name)).select("id", "v", "s", "l", "m").count()
            == 2
        )
    assert (
        sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == data.to_pylist()
    )


def test_a_table_is_created_by_the_schema_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, cast(id as byte) b, timestamp_ntz'2026-01-01 00:00:00' at, array(id) l from"
        " range(3)"
    )
    table = mdt.create(LocalStorage(tmp_path / "t", durable=False), frame.schema, ["id"])
    assert [table.schema.field(name).type for name in ("b", "at")] == [
        pa.int8(),
        pa.timestamp("us"),
    ]
    assert not table.schema.field("id").nullable, "as the frame says"
    assert table.upsert(frame).inserted == 3
    assert sorted(table.scan().to_arrow()["b"].to_pylist()) == [0, 1, 2]
    with pytest.raises(Invalid, match="that is data"):
        mdt.create(LocalStorage(tmp_path / "u", durable=False), frame, ["id"])
    with pytest.raises(Invalid, match="no table can keep"):
        mdt.create(
            LocalStorage(tmp_path / "u", durable=False),
            spark.sql("select id, interval 1 month i from range(1)").schema,
            ["id"],
        )
