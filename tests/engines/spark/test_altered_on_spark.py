"""Spark reads and writes a table whose columns were altered as Arrow does."""

from __future__ import annotations

import math
import random
import shutil
import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from reader import bag

import mdt
from mdt.errors import Invalid, Missing, Unsupported

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.int32())),
    ]
)

ALTERS: dict[str, list[dict[str, Any]]] = {
    "added": [{"add": {"more": "int64"}}],
    "added with a default": [{"add": {"more": "int64"}, "defaults": {"more": 7}}],
    "added inside": [{"add": {"s.c": "string"}}],
    "dropped": [{"drop": ["note", "s.a"]}],
    "renamed": [{"rename": {"note": "remark", "s.b": "bb"}}],
    "swapped": [
        {"rename": {"note": "other"}},
        {"rename": {"n": "note"}},
        {"rename": {"other": "n"}},
    ],
    "widened": [
        {
            "widen": {
                "n": "int64",
                "f": "double",
                "day": "timestamp[us]",
                "s.a": "double",
                "l.element": "int64",
            }
        }
    ],
    "came back": [{"drop": ["note"]}, {"add": {"NOTE": "string"}}],
    "reordered": [{"reorder": ["s", "note"]}],
}


def rows(ids: str, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "id": id,
            "n": n,
            "f": n / 8,
            "day": date(2026, 1, n),
            "note": f"n{n}",
            "s": {"a": n, "b": id},
            "l": [n, None],
        }
        for n, id in enumerate(ids, first + 1)
    ]


def same(spark: SparkSession, table: mdt.Table, path: Path) -> None:
    """Compare what both engines see: everything, one column, and rows by a filter."""
    names = table.schema.names
    frame = mdt.read(spark, str(path))
    assert frame.columns == names
    expected = table.scan().to_arrow()
    assert bag(frame.toArrow().cast(expected.schema)) == bag(expected)
    last = expected.select(names[-1:])
    assert bag(frame.select(names[-1]).toArrow().cast(last.schema)) == bag(last)
    assert {row.id for row in frame.where("id > 'b'").collect()} == {
        id for id in expected["id"].to_pylist() if id > "b"
    }
    known = sum(value is not None for value in expected[names[1]].to_pylist())
    assert frame.where(f"{names[1]} is not null").count() == known


@pytest.mark.parametrize("name", ALTERS)
def test_spark_reads_files_of_older_versions(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = mdt.create(tmp_path, SCHEMA, key=["id"])
    table.upsert(rows("abcdef"))
    table.upsert(rows("bc", 7))
    for change in ALTERS[name]:
        table.alter(**change, beyond_hudi=True)
    same(spark, table, tmp_path)
    fresh = table.scan(where="id in ('a', 'b')").to_arrow()
    table.upsert(fresh)
    table.delete({"id": ["f"]})
    mdt.read(spark, str(tmp_path)).where("id = 'c'").createOrReplaceTempView("altered")
    table.upsert(spark.table("altered"))
    same(spark, table, tmp_path)
    assert table.check().ok


def test_a_frame_of_older_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = mdt.create(tmp_path, SCHEMA, key=["id"])
    table.upsert(rows("ab"))
    frame = mdt.read(spark, str(tmp_path))
    assert frame.count() == 2
    table.alter(drop=["note"])
    with (
        pytest.raises(
            Invalid, match=r"altered since this DataFrame was made\n.*hint: make it anew"
        ),
        pytest.warns(UserWarning, match="altered"),
    ):
        frame.collect()
    assert mdt.read(spark, str(tmp_path)).count() == 2


def test_a_frame_of_a_table_that_was_replaced_at_its_path_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    mdt.create(path, SCHEMA, key=["id"]).upsert(rows("ab"))
    frame = mdt.read(spark, str(path))
    assert frame.count() == 2
    shutil.rmtree(path)
    mdt.create(path, SCHEMA, key=["id"]).upsert(rows("abc"))
    for run in (frame.collect, frame.toArrow, frame.where("id = 'a'").count):
        with (
            pytest.raises(
                Invalid,
                match=(
                    r"was replaced by another one since this DataFrame was made\n.*hint: make it"
                    r" anew"
                ),
            ),
            pytest.warns(UserWarning, match="replaced"),
        ):
            run()
    assert mdt.read(spark, str(path)).count() == 3


def test_frames_of_a_table_that_was_deleted_say_so(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = mdt.create(path, SCHEMA, key=["id"], table_type="MERGE_ON_READ")
    table.upsert(rows("ab"))
    table.upsert(rows("ac"))
    newest, derived = mdt.read(spark, str(path)), mdt.read(spark, str(path)).where("id > 'a'")
    past, told = mdt.read(spark, str(path), as_of=1), table.changes(1).to_spark(spark)
    assert [one.count() for one in (newest, past, told)] == [3, 2, 3] and len(
        derived.collect()
    ) == 2
    shutil.rmtree(path)
    spark.newSession()  # which puts PySpark's own way of raising errors in the place of others
    with (
        pytest.raises(Invalid, match="is not a table of mdt"),
        pytest.warns(UserWarning, match="is not a table"),
    ):
        newest.collect()
    with pytest.raises(
        Unsupported, match=r"does not find at .* the table(.*\n.*)*make the DataFrame anew"
    ):
        told.collect()
    for frame in (derived, past):
        with pytest.raises(
            Missing,
            match=r"is gone: the table was deleted or replaced.*\n.*hint: make the DataFrame anew",
        ):
            frame.collect()


def test_a_past_state_has_its_columns_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = mdt.create(tmp_path, SCHEMA, key=["id"])
    table.upsert(rows("ab"))
    then, expected = table.snapshot().seq, table.scan().to_arrow()
    table.alter(rename={"note": "remark"}, widen={"n": "int64"}, beyond_hudi=True)
    frame = mdt.read(spark, str(tmp_path), as_of=then)
    assert bag(frame.toArrow().cast(expected.schema)) == bag(expected)


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_an_upsert_of_a_data_frame_evolves_the_table(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    mdt.create(tmp_path, SCHEMA, key=["id"]).upsert(rows("abc"))
    table = mdt.open(tmp_path, {"mdt.spark.local.bytes.max": local_bytes})
    frame = spark.sql(
        "select 'b' id, 2L * 1000000000000 n, 'fresh' more union all select 'z', 3L, null"
    )
    result = table.upsert(frame, evolve=True)
    assert (result.inserted, result.updated, result.engine) == (
        1,
        1,
        "arrow" if local_bytes else "spark",
    )
    found = {
        row["id"]: (row["n"], row["more"], row["note"])
        for row in table.scan().to_arrow().to_pylist()
    }
    assert (
        found["a"] == (1, None, "n1")
        and found["b"] == (2 * 10**12, "fresh", None)
        and found["z"] == (3, None, None)
    )
    same(spark, table, tmp_path)


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_a_data_frame_that_evolves_a_table_may_lack_fields_of_structs(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    """At any depth, as rows of Arrow may; what has no type goes."""
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    columns = [
        ("id", pa.string()),
        ("s", inner),
        ("items", pa.list_(inner)),
        ("by", pa.map_(pa.string(), inner)),
    ]
    query = (
        "with t as (select named_struct('b', text, 'z', n) s from values ('new', 1L), (null, null)"
        " as v(text, n)) select 'b' id, s, array(s, null) items, map('k', s) by, null nothing from"
        " t where s.b = 'new' union all select 'z', null, null, null, null"
    )
    found = []
    for name, given in (("spark", spark.sql(query)), ("arrow", spark.sql(query).toArrow())):
        table = mdt.create(
            tmp_path / name, pa.schema(columns), key=["id"], table_type="COPY_ON_WRITE"
        )
        value = {"a": 1, "b": "old"}
        table.upsert(
            [{"id": one, "s": value, "items": [value], "by": {"k": value}} for one in "ab"]
        )
        result = mdt.open(tmp_path / name, {"mdt.spark.local.bytes.max": local_bytes}).upsert(
            given, evolve=True
        )
        assert (result.inserted, result.updated) == (1, 1)
        found.append((table.schema, sorted(table.scan().to_arrow().to_pylist(), key=str)))
        with pytest.raises(Invalid, match="occur twice"):
            table.upsert(spark.sql("select 'a' id, 1 n, 2 n"), evolve=True)
    assert found[0] == found[1]
    assert {"a": None, "b": "new", "z": 1} in [row["s"] for row in found[0][1]]


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_widened_numbers_are_those_in_process(
    spark: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    draw = random.Random(3)
    floats = [struct.unpack("<f", struct.pack("<I", draw.getrandbits(32)))[0] for _ in range(3000)]
    floats += [4088288.25, 0.1, 2e-3, 1.4e-45, 3.4028234663852886e38, 2.0**-126, math.inf, -0.0]
    schema = pa.schema(
        [("id", pa.int64()), ("f", pa.float32()), ("i", pa.int64()), ("m", pa.decimal128(8, 2))]
    )
    table = mdt.create(tmp_path, schema, key=["id"], options={"mdt.durable": False})
    numbers = range(len(floats))
    values = [
        numbers,
        floats,
        [draw.getrandbits(63) for _ in numbers],
        [Decimal(n) / 4 for n in numbers],
    ]
    table.upsert(
        pa.table([pa.array(v, t) for v, t in zip(values, schema.types, strict=True)], schema=schema)
    )
    table.alter(widen={"f": "double", "i": "double", "m": "decimal(25, 2)"}, beyond_hudi=True)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        found = mdt.read(spark, str(tmp_path)).toArrow().sort_by("id")
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    expected = table.scan().to_arrow().sort_by("id")
    assert list(map(repr, found["f"].to_pylist())) == list(map(repr, expected["f"].to_pylist()))
    assert found.drop(["f"]).cast(expected.drop(["f"]).schema) == expected.drop(["f"])
