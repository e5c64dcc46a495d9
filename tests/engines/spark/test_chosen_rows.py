"""If indexes select single rows of files, Spark reads these rows and the pages around them. Queries
return the same rows as without indexes.
"""

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from reader import bag

import mdt
from mdt.engines.spark.private import java_frame

ROWS = 60_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("code", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("real", pa.float64()),
        ("place", pa.struct([("zip", pa.string())])),
        ("stops", pa.list_(pa.struct([("n", pa.int64())]))),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
QUERIES = {
    "one column": "select name from {t} where code = 77",
    "all flat columns": "select id, code, name, price, day, at, real from {t} where code = 78",
    "nested columns": "select id, place, stops, tags from {t} where code = 80",
    "count": "select count(*) from {t} where code = 79",
    "no row": "select count(*), max(name) from {t} where code = 77 and name = 'n3'",
    "aggregate": "select name, sum(price), min(at) from {t} where code in (5, 77) group by name",
    "two of one filter": (
        "select a.name, b.price from {t} a join {t} b on a.id = b.id where a.code = 77 and b.code"
        " = 77"
    ),
    "two of other filters": (
        "select a.name, b.real from {t} a join {t} b on a.name = b.name where a.code = 70 and"
        " b.code = 71"
    ),
    "union": (
        "select name from {t} where code = 77 union all select cast(day as string) from {t} where"
        " code = 77"
    ),
    "union of wholes": (
        "select * except (place, stops, tags) from {t} where code = 7 union all select * except"
        " (place, stops, tags) from {t} where code = 7"
    ),
    "scalar subquery": (
        "select id, (select max(real) from {t} where code = 6) m from {t} where code = 5"
    ),
    "correlated": (
        "select a.id, (select max(b.price) from {t} b where b.name = a.name and b.code = 9) m from"
        " {t} a where a.code = 8"
    ),
    "in subquery": (
        "select id, price from {t} where code = 5 and name in (select name from {t} where code = 6)"
    ),
    "not translated": "select id from {t} where code = 12 and length(name) = 2 and rand(3) < 2",
    "window": "select id, rank() over (partition by name order by price) r from {t} where code = 3",
    "or": "select id, real from {t} where code = 5 or code = 9 and name = 'n4'",
}


def rows(numbers, step=1):
    n = np.array(numbers, np.int64)
    order = n * step
    columns = {
        "id": [f"k{i:06}" for i in numbers],
        "code": pa.array(order * 7919 % 12_000, mask=order % 97 == 0),
        "name": [f"n{i % 5}" for i in numbers],
        "price": pa.array((order % 1000).astype(np.int32)).cast(pa.decimal128(12, 2)),
        "day": pa.array((order % 500).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(order * 1_000_003).cast(pa.timestamp("us", "UTC")),
        "real": np.where(order % 11 == 0, np.nan, order / 7),
        "place": [{"zip": f"z{i % 3}"} for i in numbers],
        "stops": [None if i % 5 == 0 else [{"n": i}, None] * (i % 3) for i in numbers],
        "tags": [[(f"t{i % 4}", i)] * (i % 2) for i in numbers],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


SETTINGS = {
    "as it is": {},
    "rows": {"spark.sql.parquet.enableVectorizedReader": "false"},
    "no generated code": {"spark.sql.codegen.wholeStage": "false"},
    "rows of batches": {"spark.sql.codegen.maxFields": "1"},
    "flat batches only": {"spark.sql.parquet.enableNestedColumnVectorizedReader": "false"},
    "small splits and odd batches": {
        "spark.sql.files.maxPartitionBytes": "70000",
        "spark.sql.parquet.columnarReaderBatchSize": "777",
    },
    "no pushed filters": {"spark.sql.parquet.filterPushdown": "false"},
    "off heap": {"spark.sql.columnVector.offheap.enabled": "true"},
}


def new_table(path):
    options = {"mdt.max.file.bytes": 1_000_000, "mdt.durable": False}
    created = mdt.create(
        path, SCHEMA, ["id"], table_type="MERGE_ON_READ", indexes=["bitmap(code)"], options=options
    )
    created.bulk_insert(rows(range(ROWS)))
    assert len(created.files()) > 1
    return created


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return new_table(tmp_path_factory.mktemp("chosen") / "table")


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    """Base files with deleted rows in single places, in runs and in whole row groups, and log files
    with deleted rows.
    """
    created = new_table(tmp_path_factory.mktemp("chosen") / "dirty")
    created.upsert(rows(range(0, ROWS // 3, 7), 3))
    created.delete(rows(range(500)).select(["id"]))
    created.delete(rows(range(20_000, 31_000)).select(["id"]))
    created.upsert(rows(range(49, 20_000, 49), 5))
    snapshot = created.snapshot()
    assert ((snapshot.dead_rows > 0) & (snapshot.kind != 0)).any()
    return created


@pytest.fixture
def settings(spark, request):
    """Spark with the settings of this name."""
    chosen = SETTINGS[request.param]
    for name, value in chosen.items():
        spark.conf.set(name, value)
    yield
    for name in chosen:
        spark.conf.unset(name)


def native(spark, table, name):
    """Register the live rows as a view without any index."""
    spark.createDataFrame(table.scan().to_arrow()).createOrReplaceTempView(name)


def shown(frame):
    return bag(frame.select(*(sf.col(c).cast("string") for c in frame.columns)).toArrow())


def scanned(query):
    """Run the query and return how many rows its scans returned, by Spark's own metrics."""
    query.collect()
    plan = java_frame(query).queryExecution().executedPlan()
    leaves = (
        plan.finalPhysicalPlan() if "Adaptive" in plan.getClass().getSimpleName() else plan
    ).collectLeaves()
    scans = [
        leaf
        for leaf in map(leaves.apply, range(leaves.size()))
        if leaf.getClass().getSimpleName() == "FileSourceScanExec"
    ]
    return sum(int(leaf.metrics().apply("numOutputRows").value()) for leaf in scans)


@pytest.mark.parametrize("name", ["table", "dirty"])
def test_queries_give_the_rows_of_a_plain_table(spark, name, request):
    mdt_table = request.getfixturevalue(name)
    native(spark, mdt_table, "plain")
    mdt.read(spark, mdt_table.path).createOrReplaceTempView("ours")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than running
    try:
        for text in QUERIES.values():
            assert shown(spark.sql(text.format(t="ours"))) == shown(
                spark.sql(text.format(t="plain"))
            ), text
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")


COLUMNS = ["id", "code", "price", "day", "place", "stops", "tags"]
WHERES = [
    "true",
    "code = 77",
    "code in (5, 70, 71) and name > 'n1'",
    "id between 'k000480' and 'k000530'",
    "real > 8000 and code < 50",
    "id >= 'k019990' and id < 'k031010' or code = 3",
]


@pytest.mark.parametrize("settings", SETTINGS, indirect=True)
def test_live_rows_are_the_same_under_every_setting_of_spark(spark, dirty, settings):
    frame = mdt.read(spark, dirty.path)
    for where in WHERES:
        expected = dirty.scan(None if where == "true" else where, columns=COLUMNS).to_arrow()
        read = frame.where(where).select(*COLUMNS).toArrow()
        assert bag(read.cast(expected.schema)) == bag(expected), where
        assert frame.where(where).count() == len(expected), where


@pytest.mark.parametrize(
    "settings", ["as it is", "rows", "small splits and odd batches"], indirect=True
)
def test_row_positions_are_right_with_pushed_filters(spark, dirty, settings):
    """The row positions that Spark reports are the positions in the file, and none is the position
    of a deleted row.
    """
    frame = mdt.read(spark, dirty.path)
    snapshot, deleted_positions = dirty.snapshot(), {}
    for number in snapshot.live_numbers.tolist():
        deleted_positions[snapshot.files.value("name", number).as_py()] = set(
            snapshot.vector(number) or ()
        )
    for where in ("id > 'k000400' and id < 'k000700'", "code = 77", "true"):
        columns = (
            frame.where(where)
            .select("id", "_metadata.file_name", "_metadata.row_index")
            .toArrow()
            .to_pydict()
        )
        assert (
            len(set(zip(columns["file_name"], columns["row_index"], strict=True)))
            == len(columns["id"])
            > 0
        )
        assert not any(
            at in deleted_positions[file]
            for file, at in zip(columns["file_name"], columns["row_index"], strict=True)
        )
    row = frame.where("id = 'k000600'").select("_metadata.row_index", "_metadata.file_name").first()
    same_row = frame.where(
        f"_metadata.row_index = {row[0]} and _metadata.file_name = '{row[1]}'"
    ).select("id")  # type: ignore[index]
    assert [row.id for row in same_row.collect()] == ["k000600"]


def test_scans_return_only_rows_selected_by_an_index(spark, table, dirty):
    for mdt_table in (table, dirty):
        frame = mdt.read(spark, mdt_table.path)
        expected = mdt_table.scan("code = 77").count()
        assert expected > 0
        assert scanned(frame.where("code = 77").select("id", "real")) == expected
        assert scanned(frame.where("code = 77").select("place.zip")) == expected, (
            "applies to struct fields, too"
        )
        assert (
            scanned(frame.where("code in (5, 70) and name = 'n0'").select("id"))
            <= mdt_table.scan("code in (5, 70)").count()
        )
        assert (
            scanned(frame.where("code > 50").select("id")) > mdt_table.scan("code > 50").count() / 2
        )
    assert scanned(mdt.read(spark, dirty.path).select("id")) == dirty.scan().count()


def test_queries_are_right_after_random_deletes_and_upserts(spark, tmp_path):
    """Single rows, runs and whole files change. Queries are compared with the same queries in
    process.
    """
    draw = random.Random(7)
    mdt_table = new_table(tmp_path / "t")
    frame = mdt.read(spark, mdt_table.path)
    for step in range(6):
        first = draw.randrange(ROWS)
        ids = range(
            first, min(ROWS, first + draw.choice([1, 50, 5000, 20_000])), draw.choice([1, 1, 3, 97])
        )
        if step % 2:
            mdt_table.upsert(rows(ids, step + 2))
        else:
            mdt_table.delete(rows(ids).select(["id"]))
        low = draw.randrange(ROWS)
        for where in (
            f"code = {draw.randrange(12_000)} or code = {draw.randrange(50)}",
            f"id > 'k{low:06}' and id < 'k{low + 900:06}'",
        ):
            expected = mdt_table.scan(where, columns=["id", "code", "name"]).to_arrow()
            assert bag(
                frame.where(where).select("id", "code", "name").toArrow().cast(expected.schema)
            ) == bag(expected), where
        assert frame.count() == mdt_table.scan().count()
